"""The rights of the operator: which roles its service account needs, depending on what it does. Pure.

Used by everything that prints or applies manifests, and by tests that run the operator with exactly these roles.

    ClusterRole                     what has no namespace; what jobs need, if the operator works in all namespaces
    Role in each listed namespace   what jobs need, if it is limited to these
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
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"

_RBAC = "rbac.authorization.k8s.io"


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


_READ = ["get", "list", "watch"]
_LIFECYCLE: list[Object] = [
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs"], "verbs": [*_READ, "delete"]},
    # To find out whether `status.retention` is kept.
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": [f"trainjobs.{TRAIN_JOBS.group}"],
        "verbs": ["get"],
    },
    # For --history; events are also written, and those of Jobs say why the server refuses their Pods.
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": [*_READ, "create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]


def _list_v1_lifecycle_rules(models: Sequence[type[V1Job]]) -> list[Object]:
    plurals = [model.gvr.plural for model in models]
    return [
        {"apiGroups": [GROUP], "resources": plurals, "verbs": [*_READ, "delete"]},
        {"apiGroups": [GROUP], "resources": [f"{plural}/status" for plural in plurals], "verbs": ["patch"]},
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": [f"{plural}.{GROUP}" for plural in plurals],
            "verbs": ["get"],
        },
    ]


COMPANION_RULES: list[Object] = [
    *_LIFECYCLE,
    *_list_v1_lifecycle_rules(MODELS),
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainingruntimes", "clustertrainingruntimes"], "verbs": _READ},
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs/status"], "verbs": ["patch"]},
    # The policy, and the snapshot of each job's runtime.
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": _READ},
    # For --history.
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": _READ},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
]
RULES: list[Object] = [
    *_LIFECYCLE,
    # Runtimes derived for single jobs are deleted with them.
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainingruntimes"], "verbs": [*_READ, "delete"]},
    {
        "apiGroups": [TRAIN_JOBS.group],
        "resources": ["clustertrainingruntimes"],
        "verbs": [*_READ, "create", "update", "patch"],
    },
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs/status"], "verbs": ["patch"]},
    # To authenticate progress reports, and for the status server's certificate.
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET, rotation.SECRET], "verbs": ["update"]},
    # To keep `caBundle` of our webhooks right, and to find out whether a priority class exists.
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "resourceNames": [WEBHOOKS],
        "verbs": [*_READ, "update"],
    },
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get"]},
    # Required to set owner references that block deletion, where that is checked.
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": [*_READ, "create", "patch", "delete"]},
    # To report which rank failed, and how.
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": [*_READ, "create", "patch"]},
    {
        "apiGroups": ["scheduling.x-k8s.io", "scheduling.volcano.sh"],
        "resources": ["podgroups"],
        "verbs": [*_READ, "create", "patch"],
    },
]


def build_access(duties: Duties) -> list[Object]:
    """The service account, its roles and their bindings."""
    account = {"name": duties.name, "namespace": duties.own_namespace}
    roles = [_build_role(duties, "", list_cluster_rules(duties))]
    roles += [_build_role(duties, namespace, list_job_rules(duties)) for namespace in duties.namespaces]
    bindings = [_build_binding(duties, role) for role in roles]
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}, *roles, *bindings]


def list_cluster_rules(duties: Duties) -> list[Object]:
    """The rules of the ClusterRole."""
    return [] if duties.namespaces else list_job_rules(duties)


def list_job_rules(duties: Duties) -> list[Object]:
    """What is needed in each namespace with jobs."""
    if duties.companion:
        return COMPANION_RULES
    return [*RULES, *(_list_v1_rules(duties.v1_jobs) if duties.v1_jobs else ())]


def _build_role(duties: Duties, namespace: str, rules: list[Object]) -> Object:
    """A ClusterRole if `namespace` is empty."""
    meta = {"name": duties.name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": meta,
        "rules": rules,
    }


def _build_binding(duties: Duties, role: Object) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": dict(role["metadata"]),
        "roleRef": {"apiGroup": _RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": duties.name, "namespace": duties.own_namespace}],
    }


def _list_v1_rules(models: Sequence[type[V1Job]]) -> list[Object]:
    rules: list[Object] = [
        *_list_v1_lifecycle_rules(models),
        {
            "apiGroups": [GROUP],
            "resources": [f"{model.gvr.plural}/finalizers" for model in models],
            "verbs": ["update"],
        },
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": [*_READ, "create", "patch", "delete"]},
        # For --gang-scheduler-name; RULES has the other rights to PodGroups.
        {
            "apiGroups": ["scheduling.x-k8s.io", "scheduling.volcano.sh"],
            "resources": ["podgroups"],
            "verbs": ["delete"],
        },
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": _READ},
        # To find out at the start whether training-operator runs the same kinds.
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingwebhookconfigurations"],
            "verbs": ["list"],
        },
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]
    if PyTorchJob in models:
        rules.append(
            {
                "apiGroups": ["autoscaling"],
                "resources": ["horizontalpodautoscalers"],
                "verbs": [*_READ, "create", "patch", "delete"],
            }
        )
    if MPIJob in models:
        # The launcher may execute commands in its workers; a role can be granted only by who has its rights.
        rules += [
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": [*_READ, "create"]},
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["roles", "rolebindings"],
                "verbs": [*_READ, "create", "patch"],
            },
        ]
    return rules
