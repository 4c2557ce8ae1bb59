"""What a cluster needs before the operator can work: our kinds, and a role with the least that it uses.

`trainmaster operator --print-manifests` prints it for `kubectl apply`; tests/seam runs the operator with exactly this
role. JobSet is not part of it: its own release brings its kinds and its manager.
"""

from __future__ import annotations

from trainmaster.api.declaring import catalogue, crd
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.operator.status_keys import SECRET

NAME = "trainmaster-operator"
NAMESPACE = "trainmaster-system"
PORT = 10443
"""Of the status server; upstream's."""
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"

_READ = ["get", "list", "watch"]
_LIFECYCLE: list[Object] = [
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs"], "verbs": [*_READ, "delete"]},
    # Whether `status.retention` is kept there.
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": [f"trainjobs.{TRAIN_JOBS.group}"],
        "verbs": ["get"],
    },
    # For --history; events also to send them.
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
COMPANION_RULES: list[Object] = [
    *_LIFECYCLE,
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
    # Those that were derived for single jobs go with them.
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainingruntimes"], "verbs": [*_READ, "delete"]},
    {
        "apiGroups": [TRAIN_JOBS.group],
        "resources": ["clustertrainingruntimes"],
        "verbs": [*_READ, "create", "update", "patch"],
    },
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs/status"], "verbs": ["patch"]},
    # Who reports progress, and the certificate of the server to which it is reported.
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["update"]},
    # Where owners that block deletion are checked, whoever names one must be allowed this.
    {"apiGroups": [TRAIN_JOBS.group], "resources": ["trainjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": [*_READ, "create", "patch", "delete"]},
    # To say which rank failed, and how.
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": [*_READ, "create", "patch"]},
    {
        "apiGroups": ["scheduling.x-k8s.io", "scheduling.volcano.sh"],
        "resources": ["podgroups"],
        "verbs": [*_READ, "create", "patch"],
    },
]


def build_manifests(*, companion: bool = False) -> Object:
    """Beside upstream's manager its own kinds are there already, and ours must not replace them."""
    if companion:
        return {"apiVersion": "v1", "kind": "List", "items": _build_access(COMPANION_RULES)}
    definitions = crd.build_all(kind for kind in catalogue.build().kinds if kind.group == TRAIN_JOBS.group)
    items = [*definitions, *_build_access(RULES), _build_service()]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def build_progress_url(namespace: str, port: int = PORT) -> str:
    """Where Pods of the cluster reach the status server of operators that run in Pods there."""
    return f"https://{NAME}.{namespace}.svc:{port}"


def _build_service() -> Object:
    """Leads to the operator's Pods, whoever made them: by the label that they must carry."""
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
