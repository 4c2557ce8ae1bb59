"""The rights of the operator: which roles its service account needs, depending on what it does. Pure.

Used by everything that prints or applies manifests. `tests/seam/test_rights.py` runs the operator with exactly these
roles, and fails on a right that is missing and on one that nothing used.

    ClusterRole NAME                     what has no namespace; what jobs need, if it works in all namespaces
    Role NAME-jobs in each namespace     what jobs need, if it is limited to namespaces
    Role NAME in its own namespace       its Lease and its certificates, by name
    ClusterRole trainmaster-metrics-reader   to be bound to Prometheus: reading the operator's metrics

`get` of everything that it writes: after a write whose answer was lost, it reads what became of the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import GROUP
from trainmaster.jobs.models.v1jobs import MODELS, MPIJob, PyTorchJob, V1Job
from trainmaster.operator.status_keys import SECRET
from trainmaster.operator.webhooks import rotation
from trainmaster.operator.webhooks.configurations import NAME as WEBHOOKS

NAME = "trainmaster-operator"
NAMESPACE = "trainmaster-system"
METRICS_READER = "trainmaster-metrics-reader"
METRICS_PATH = "/metrics"
LEASE_NAME = "trainmaster-operator"
COMPANION_LEASE_NAME = "trainmaster-companion"
TRAINING_OPERATOR_HOOKS = "validator.training-operator.kubeflow.org"

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_POD_GROUPS = ("scheduling.x-k8s.io", "scheduling.volcano.sh")


@dataclass(frozen=True, slots=True)
class Duties:
    """What an operator does, as far as its rights depend on it."""

    companion: bool = False
    """Only retention, beside upstream's managers."""
    v1_jobs: tuple[type[V1Job], ...] = ()
    """The kinds of training-operator that it runs."""
    namespaces: tuple[str, ...] = ()
    """The namespaces with jobs; () is all."""
    history: bool = False
    """Keeps records of jobs, with their logs and events."""
    last_words: bool = False
    """Reads the end of the log of a Pod that failed without a termination message."""
    own_namespace: str = NAMESPACE
    """The operator's own."""
    name: str = NAME
    """Of its service account and its roles."""

    @property
    def user(self) -> str:
        """The operator's user name."""
        return f"system:serviceaccount:{self.own_namespace}:{self.name}"

    @property
    def reader(self) -> str:
        """The ClusterRole for whoever reads its metrics."""
        return METRICS_READER if self.name == NAME else f"{self.name}-metrics-reader"

    @property
    def models(self) -> tuple[type[V1Job], ...]:
        """The v1 kinds whose jobs are deleted after their time."""
        return MODELS if self.companion else self.v1_jobs


SERVICE_ACCOUNT = Duties().user
"""By default."""


def build_access(duties: Duties) -> list[Object]:
    """The service account, its roles and their bindings."""
    account = {"name": duties.name, "namespace": duties.own_namespace}
    roles = [
        _build_role(duties.name, "", list_cluster_rules(duties)),
        _build_role(duties.name, duties.own_namespace, list_own_rules(duties)),
    ]
    roles += [_build_role(f"{duties.name}-jobs", place, list_job_rules(duties)) for place in duties.namespaces]
    bindings = [_build_binding(duties, role) for role in roles]
    reader = _build_role(duties.reader, "", [{"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}])
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}, *roles, *bindings, reader]


def _build_role(name: str, namespace: str, rules: list[Object]) -> Object:
    """A ClusterRole if `namespace` is empty."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules}


def _build_binding(duties: Duties, role: Object) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": dict(role["metadata"]),
        "roleRef": {"apiGroup": _RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": duties.name, "namespace": duties.own_namespace}],
    }


def list_cluster_rules(duties: Duties) -> list[Object]:
    """The rules of the ClusterRole."""
    rules = _list_unscoped_rules(duties)
    return rules if duties.namespaces else [*rules, *list_job_rules(duties)]


def _list_unscoped_rules(duties: Duties) -> list[Object]:
    # Of our kinds, to find out which of our fields the definitions have.
    plurals = [f"{model.gvr.plural}.{GROUP}" for model in duties.models]
    definitions = [f"trainjobs.{TRAIN_JOBS.group}", *plurals]
    rules = [
        _rule(TRAIN_JOBS.group, "clustertrainingruntimes", "list", "watch"),
        _rule("apiextensions.k8s.io", "customresourcedefinitions", "get", names=definitions),
        # Who reads metrics, and who reports progress.
        _rule("authentication.k8s.io", "tokenreviews", "create"),
        _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    ]
    if not duties.companion:
        # The shipped ones are installed.
        rules.append(_rule(TRAIN_JOBS.group, "clustertrainingruntimes", "get", "create", "update", "patch"))
        # To keep `caBundle` of our webhooks right, and to find out whether a priority class exists.
        hooks = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        rules.append(_rule(_ADMISSION, hooks, "list", "watch", "update", names=[WEBHOOKS]))
        rules.append(_rule("scheduling.k8s.io", "priorityclasses", "get"))
    if duties.v1_jobs:
        # A webhook of training-operator that would refuse the jobs; the priorities for gang schedulers.
        rules.append(_rule(_ADMISSION, "validatingwebhookconfigurations", "get", names=[TRAINING_OPERATOR_HOOKS]))
        rules.append(_rule("scheduling.k8s.io", "priorityclasses", "list", "watch"))
    return rules


def list_own_rules(duties: Duties) -> list[Object]:
    """What is needed in the operator's own namespace. `create` cannot be limited to a name."""
    lease = COMPANION_LEASE_NAME if duties.companion else LEASE_NAME
    rules = [
        _rule("coordination.k8s.io", "leases", "create"),
        _rule("coordination.k8s.io", "leases", "get", "update", names=[lease]),
        _rule("", "secrets", "create"),
        _rule("", "secrets", "get", "update", names=[SECRET]),
    ]
    if duties.namespaces:
        # About itself: what keeps it from working. An operator for all namespaces may write events anywhere.
        rules.append(_rule("", "events", "get", "create", "patch"))
    if not duties.companion:
        # The certificate of the webhooks, which is renewed while they are served.
        rules.append(_rule("", "secrets", "get", "list", "watch", "update", names=[rotation.SECRET]))
    return rules


def list_job_rules(duties: Duties) -> list[Object]:
    """What is needed in each namespace with jobs."""
    rules = [
        _rule(TRAIN_JOBS.group, "trainjobs", "get", "list", "watch", "delete"),
        _rule(TRAIN_JOBS.group, "trainjobs/status", "patch"),
        # A repeated event is read, and its count is incremented.
        _rule("", "events", "get", "create", "patch"),
    ]
    if duties.history and duties.companion:
        rules.append(_rule("", "events", "list"))
    if duties.models:
        plurals = [model.gvr.plural for model in duties.models]
        rules.append(_rule(GROUP, plurals, "get", "list", "watch", "delete"))
        rules.append(_rule(GROUP, [f"{plural}/status" for plural in plurals], "patch"))
    if duties.history or duties.last_words:
        rules.append(_rule("", "pods/log", "get"))
    if duties.companion:
        return [*rules, *_list_companion_rules(duties)]
    return [*rules, *_list_trainjob_rules(duties), *(_list_v1_rules(duties) if duties.v1_jobs else ())]


def _list_companion_rules(duties: Duties) -> list[Object]:
    rules = [
        _rule(TRAIN_JOBS.group, "trainingruntimes", "list", "watch"),
        # The policy, and the snapshot of each job's runtime.
        _rule("", "configmaps", "get", "list", "watch"),
    ]
    if duties.history:
        rules += [
            _rule("jobset.x-k8s.io", "jobsets", "get", "list", "watch"),
            _rule("batch", "jobs", "list"),
            _rule("", "pods", "list"),
        ]
    return rules


def _list_trainjob_rules(duties: Duties) -> list[Object]:
    return [
        # Those of Jobs say why the server refuses their Pods.
        _rule("", "events", "list", "watch"),
        # Runtimes derived for single jobs are deleted after them.
        _rule(TRAIN_JOBS.group, "trainingruntimes", "get", "list", "watch", "delete"),
        # Required to set owner references that block deletion, where that is checked.
        _rule(TRAIN_JOBS.group, "trainjobs/finalizers", "update"),
        _rule("jobset.x-k8s.io", "jobsets", "get", "list", "watch", "create", "patch", "delete"),
        # To report which rank failed, and how.
        _rule("batch", "jobs", "list", "watch"),
        _rule("", "pods", "list", "watch"),
        _rule("", "configmaps", "get", "list", "watch", "create", "patch"),
        # Of MPI and Flux. They are never read.
        _rule("", "secrets", "create"),
        _rule(_POD_GROUPS, "podgroups", "get", "list", "watch", "create", "patch"),
    ]


def _list_v1_rules(duties: Duties) -> list[Object]:
    models = duties.v1_jobs
    rules = [
        _rule(GROUP, [f"{model.gvr.plural}/finalizers" for model in models], "update"),
        _rule("", "pods", "get", "create", "patch", "delete"),
        _rule(_POD_GROUPS, "podgroups", "delete"),
        # To find out at the start whether training-operator runs the same kinds.
        _rule("apps", "deployments", "list"),
    ]
    if any(model is not MPIJob for model in models):
        rules.append(_rule("", "services", "get", "list", "watch", "create", "patch", "delete"))
    if PyTorchJob in models:
        verbs = ("get", "list", "watch", "create", "patch", "delete")
        rules.append(_rule("autoscaling", "horizontalpodautoscalers", *verbs))
    if MPIJob in models:
        rules += [
            _rule("", "serviceaccounts", "get", "list", "watch", "create"),
            _rule(_RBAC, "roles", "get", "list", "watch", "create", "patch"),
            _rule(_RBAC, "rolebindings", "get", "list", "watch", "create"),
            *list_granted_rules(models),
        ]
    return rules


def list_granted_rules(models: Sequence[type[V1Job]]) -> list[Object]:
    """Rights that the operator never uses: the launcher of an MPIJob executes commands in its workers, and only who has
    a right may grant it with a Role."""
    return [_rule("", "pods/exec", "create"), _rule("", "pods", "get", "list", "watch")] if MPIJob in models else []


def _rule(
    groups: str | Sequence[str], resources: str | Sequence[str], *verbs: str, names: Sequence[str] = ()
) -> Object:
    rule: Object = {
        "apiGroups": [groups] if isinstance(groups, str) else list(groups),
        "resources": [resources] if isinstance(resources, str) else list(resources),
        "verbs": list(verbs),
    }
    return {**rule, "resourceNames": list(names)} if names else rule
