"""What a cluster needs before the operator can work: our kinds, and a role with minimal permissions.

`trainmaster operator --print-manifests` prints it for `kubectl apply`; tests/seam runs the operator with exactly this
role. JobSet is not included: its own release installs its kinds and its manager.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.declaring import catalogue, crd
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import GROUP
from trainmaster.jobs.models.v1jobs import MODELS, MPIJob, PyTorchJob, V1Job
from trainmaster.operator.status_keys import SECRET

NAME = "trainmaster-operator"
NAMESPACE = "trainmaster-system"
PORT = 10443
"""The status server's port, as upstream."""
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"

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
    # For --history; events are also written.
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "create", "patch"]},
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
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["update"]},
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


def build_manifests(*, companion: bool = False, v1_jobs: Sequence[type[V1Job]] = ()) -> Object:
    """As a companion of upstream's managers their kinds already exist, and must not be replaced. `v1_jobs`: the kinds
    of training-operator that the operator runs."""
    if companion:
        return {"apiVersion": "v1", "kind": "List", "items": _build_access(COMPANION_RULES)}
    wanted = {model.gvr for model in v1_jobs}
    kinds = [kind for kind in catalogue.build().kinds if kind.group == TRAIN_JOBS.group or kind.gvr in wanted]
    rules = [*RULES, *(_list_v1_rules(v1_jobs) if v1_jobs else ())]
    items = [*crd.build_all(kinds), *_build_access(rules), _build_service()]
    return {"apiVersion": "v1", "kind": "List", "items": items}


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


def build_progress_url(namespace: str, port: int = PORT) -> str:
    """The URL at which Pods of the cluster reach the status server of operators in Pods."""
    return f"https://{NAME}.{namespace}.svc:{port}"


def _build_service() -> Object:
    """Selects the operator's Pods by a label that they must have."""
    port = {"name": "progress", "port": PORT, "targetPort": PORT, "protocol": "TCP"}
    spec = {"selector": {"app.kubernetes.io/name": NAME}, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec}


def _build_access(rules: list[Object]) -> list[Object]:
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": NAME}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": NAME}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**meta, "namespace": NAMESPACE}},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [subject],
        },
    ]
