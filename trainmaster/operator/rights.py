"""The rights of the operator: which roles its service account needs, depending on what it does. Pure.

They are a description (`templating`), which the chart reads, and everything else that installs the operator.
`tests/seam/test_rights.py` runs the operator with exactly these roles, and fails on a right that is missing and on one
that nothing used.

    ClusterRole NAME[-INSTANCE]          what has no namespace; what jobs need, if it works in all namespaces
    Role NAME-jobs in each namespace     what jobs need, if it is limited to namespaces
    Role NAME in its own namespace       its Lease and its certificates, by name
    RoleBinding NAME in kube-system      reading how API servers identify themselves, by a role of Kubernetes
    ClusterRole trainmaster-metrics-reader   to be bound to Prometheus: reading the operator's metrics

`get` of everything that it writes: after a write whose answer was lost, it reads what became of the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Object
from trainmaster.api.resources import API_SERVICES, TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import GROUP
from trainmaster.jobs.models.v1jobs import MODELS, MPIJob, PyTorchJob, V1Job
from trainmaster.operator.names import NAME, NAMESPACE, describe_cluster_name
from trainmaster.operator.records import front_proxy
from trainmaster.operator.records.installation import NAME as RECORDS_NAME
from trainmaster.operator.records.installation import SECRET as RECORDS_SECRET
from trainmaster.operator.status_keys import SECRET
from trainmaster.operator.templating.evaluating import ValueScope, evaluate, evaluate_all
from trainmaster.operator.templating.nodes import (
    ALL_OF,
    All,
    Document,
    EachItem,
    Either,
    Expanded,
    ForEach,
    Has,
    Not,
    ReleaseNamespace,
    Text,
    Tree,
    Value,
    When,
)
from trainmaster.operator.webhooks import rotation

METRICS_READER = "trainmaster-metrics-reader"
METRICS_PATH = "/metrics"
LEASE_NAME = "trainmaster-operator"
COMPANION_LEASE_NAME = "trainmaster-companion"
TRAINING_OPERATOR_HOOKS = "validator.training-operator.kubeflow.org"

COMPANION, HISTORY, LISTED = Value("companion"), Value("history.enabled"), Value("watchNamespaces")
RECORDS = All(HISTORY, Value("history.records.enabled"))
V1_JOBS = Value("v1Jobs")
V1_KINDS = Expanded("v1Jobs", tuple(model.framework.singular for model in MODELS))
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_PLURALS = [model.gvr.plural for model in MODELS]
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
    records: bool = False
    """Serves these records to API servers."""
    own_namespace: str = NAMESPACE
    """The operator's own."""
    name: str = NAME
    """Of its service account and its roles."""
    instance: str = ""
    """Of its installation, if there are several on the cluster."""

    @property
    def user(self) -> str:
        """The operator's user name."""
        return f"system:serviceaccount:{self.own_namespace}:{self.name}"

    @property
    def reader(self) -> str:
        """The ClusterRole for whoever reads its metrics, without its instance."""
        return METRICS_READER if self.name == NAME else f"{self.name}-metrics-reader"

    @property
    def scope(self) -> ValueScope:
        """The values from which its roles are made."""
        values = {
            "instance": self.instance,
            "companion": self.companion,
            "v1Jobs": [model.framework.singular for model in self.v1_jobs],
            "watchNamespaces": list(self.namespaces),
            "history": {"enabled": self.history, "records": {"enabled": self.records}},
        }
        return ValueScope(values, self.own_namespace)

    @property
    def models(self) -> tuple[type[V1Job], ...]:
        """The v1 kinds whose jobs are deleted after their time."""
        return MODELS if self.companion else self.v1_jobs


SERVICE_ACCOUNT = Duties().user
"""By default."""


def build_access(duties: Duties) -> list[Object]:
    """The service account, its roles and their bindings."""
    return evaluate_all(describe_access(duties.name, duties.reader), duties.scope)


def list_cluster_rules(duties: Duties) -> list[Object]:
    """The rules of the ClusterRole."""
    return _list(describe_cluster_rules(), duties)


def list_own_rules(duties: Duties) -> list[Object]:
    """What is needed in the operator's own namespace."""
    return _list(describe_own_rules(), duties)


def list_job_rules(duties: Duties) -> list[Object]:
    """What is needed in each namespace with jobs."""
    return _list(describe_job_rules(), duties)


def _list(rules: list[Tree], duties: Duties) -> list[Object]:
    found = evaluate(rules, duties.scope)
    assert isinstance(found, list)
    return found


def runs(model: type[V1Job]) -> Has:
    """Whether the operator runs this kind."""
    return Has(V1_JOBS.path, ALL_OF, model.framework.singular)


def describe_access(name: str = NAME, reader: str = METRICS_READER) -> list[Document]:
    """`name`: of the service account and its roles."""
    account = {"name": name, "namespace": ReleaseNamespace()}
    cluster, reads = describe_cluster_name(name), describe_cluster_name(reader)
    jobs = (f"{name}-jobs", EachItem())
    return [
        Document("service-account", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}),
        Document("rights", _describe_role(cluster, "", describe_cluster_rules())),
        Document("rights", _describe_role(name, ReleaseNamespace(), describe_own_rules())),
        Document("rights-in-namespaces", ForEach(LISTED, _describe_role(*jobs, describe_job_rules()))),
        Document("rights", _describe_binding(name, cluster, "")),
        Document("rights", _describe_binding(name, name, ReleaseNamespace())),
        Document("rights-in-namespaces", ForEach(LISTED, _describe_binding(name, *jobs))),
        Document("rights", When(RECORDS, _describe_front_proxy_binding(name, cluster))),
        Document("rights", _describe_role(reads, "", [{"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}])),
    ]


def _describe_role(name: Tree, namespace: Tree, rules: list[Tree]) -> Object:
    """A ClusterRole if `namespace` is empty."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules}


def _describe_binding(account: str, role: Tree, namespace: Tree) -> Object:
    kind = "Role" if namespace else "ClusterRole"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": role, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": ReleaseNamespace()}],
    }


def _describe_front_proxy_binding(account: str, name: Tree) -> Object:
    binding = _describe_binding(account, name, front_proxy.NAMESPACE)
    return {**binding, "roleRef": {**binding["roleRef"], "name": front_proxy.READER}}


def describe_cluster_rules() -> list[Tree]:
    return [*_describe_unscoped_rules(), When(Not(LISTED), describe_job_rules())]


def _describe_unscoped_rules() -> list[Tree]:
    # Of our kinds, to find out which of our fields the definitions have.
    ours = [f"{plural}.{GROUP}" for plural in _PLURALS]
    definitions = [f"trainjobs.{TRAIN_JOBS.group}", When(COMPANION, ours, _name_kinds(f".{GROUP}"))]
    hooks = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    runs_jobs: list[Tree] = [
        # The shipped ones are installed.
        _rule(TRAIN_JOBS.group, "clustertrainingruntimes", "get", "create", "update", "patch"),
        # To keep `caBundle` of our webhooks right, and to find out whether a priority class exists.
        _rule(_ADMISSION, hooks, "list", "watch", "update", names=[describe_cluster_name(NAME)]),
        _rule("scheduling.k8s.io", "priorityclasses", "get"),
    ]
    runs_v1_jobs: list[Tree] = [
        # A webhook of training-operator that would refuse the jobs; the priorities for gang schedulers.
        _rule(_ADMISSION, "validatingwebhookconfigurations", "get", names=[TRAINING_OPERATOR_HOOKS]),
        _rule("scheduling.k8s.io", "priorityclasses", "list", "watch"),
    ]
    return [
        _rule(TRAIN_JOBS.group, "clustertrainingruntimes", "list", "watch"),
        _rule("apiextensions.k8s.io", "customresourcedefinitions", "get", names=definitions),
        # Who reads metrics or records, and who reports progress.
        _rule("authentication.k8s.io", "tokenreviews", "create"),
        _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        # To keep `caBundle` of our APIService right.
        When(RECORDS, _rule(API_SERVICES.group, API_SERVICES.plural, "list", "watch", "update", names=[RECORDS_NAME])),
        When(Not(COMPANION), runs_jobs),
        When(V1_JOBS, runs_v1_jobs),
    ]


def _name_kinds(ending: str = "") -> ForEach:
    """The plurals of the v1 kinds that the operator runs."""
    return ForEach(V1_KINDS, Text(EachItem(), f"s{ending}"))


def describe_own_rules() -> list[Tree]:
    """`create` cannot be limited to a name."""
    lease = When(COMPANION, COMPANION_LEASE_NAME, LEASE_NAME)
    return [
        _rule("coordination.k8s.io", "leases", "create"),
        _rule("coordination.k8s.io", "leases", "get", "update", names=[lease]),
        _rule("", "secrets", "create"),
        _rule("", "secrets", "get", "update", names=[SECRET]),
        # About itself: what keeps it from working. An operator for all namespaces may write events anywhere.
        When(LISTED, _rule("", "events", "get", "create", "patch")),
        # The certificates of the webhooks and of the records, which are renewed while they are served.
        When(Not(COMPANION), _rule("", "secrets", "get", "list", "watch", "update", names=[rotation.SECRET])),
        When(RECORDS, _rule("", "secrets", "get", "list", "watch", "update", names=[RECORDS_SECRET])),
    ]


def describe_job_rules() -> list[Tree]:
    retention = ("get", "list", "watch", "delete")
    retained: list[Tree] = [
        _rule(GROUP, _PLURALS, *retention),
        _rule(GROUP, [f"{plural}/status" for plural in _PLURALS], "patch"),
    ]
    run: list[Tree] = [_rule(GROUP, _name_kinds(), *retention), _rule(GROUP, _name_kinds("/status"), "patch")]
    return [
        _rule(TRAIN_JOBS.group, "trainjobs", *retention),
        _rule(TRAIN_JOBS.group, "trainjobs/status", "patch"),
        # A repeated event is read, and its count is incremented.
        _rule("", "events", "get", "create", "patch"),
        When(COMPANION, [When(HISTORY, _rule("", "events", "list")), *retained]),
        When(V1_JOBS, run),
        When(HISTORY, _rule("", "pods/log", "get")),
        When(COMPANION, _describe_companion_rules(), _describe_trainjob_rules()),
        When(V1_JOBS, _describe_v1_rules()),
    ]


def _describe_companion_rules() -> list[Tree]:
    archived: list[Tree] = [
        _rule("jobset.x-k8s.io", "jobsets", "get", "list", "watch"),
        _rule("batch", "jobs", "list"),
        _rule("", "pods", "list"),
    ]
    return [
        _rule(TRAIN_JOBS.group, "trainingruntimes", "list", "watch"),
        # The policy, and the snapshot of each job's runtime.
        _rule("", "configmaps", "get", "list", "watch"),
        When(HISTORY, archived),
    ]


def _describe_trainjob_rules() -> list[Tree]:
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


def _describe_v1_rules() -> list[Tree]:
    services = Either(*(runs(model) for model in MODELS if model is not MPIJob))
    whole = ("get", "list", "watch", "create", "patch", "delete")
    mpi: list[Tree] = [
        _rule("", "serviceaccounts", "get", "list", "watch", "create"),
        _rule(_RBAC, "roles", "get", "list", "watch", "create", "patch"),
        _rule(_RBAC, "rolebindings", "get", "list", "watch", "create"),
        *list_granted_rules([MPIJob]),
    ]
    return [
        _rule(GROUP, _name_kinds("/finalizers"), "update"),
        _rule("", "pods", "get", "create", "patch", "delete"),
        _rule(_POD_GROUPS, "podgroups", "delete"),
        # To find out at the start whether training-operator runs the same kinds.
        _rule("apps", "deployments", "list"),
        When(services, _rule("", "services", *whole)),
        When(runs(PyTorchJob), _rule("autoscaling", "horizontalpodautoscalers", *whole)),
        When(runs(MPIJob), mpi),
    ]


def list_granted_rules(models: Sequence[type[V1Job]]) -> list[Object]:
    """Rights that the operator never uses: the launcher of an MPIJob executes commands in its workers, and only who has
    a right may grant it with a Role."""
    return [_rule("", "pods/exec", "create"), _rule("", "pods", "get", "list", "watch")] if MPIJob in models else []


def _rule(groups: str | Sequence[str], resources: Tree, *verbs: str, names: Sequence[Tree] = ()) -> Object:
    rule: Object = {
        "apiGroups": [groups] if isinstance(groups, str) else list(groups),
        "resources": [resources] if isinstance(resources, str) else resources,
        "verbs": list(verbs),
    }
    return {**rule, "resourceNames": list(names)} if names else rule
