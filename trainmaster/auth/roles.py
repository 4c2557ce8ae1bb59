"""The roles and bindings every server has: cluster-admin, admin, edit, view and the system roles, as objects.

`app` writes them at start when they are missing and leaves them alone when an administrator has changed them. Names
and contents follow upstream for the kinds that exist here; the training kinds are added where the Trainer project's own
aggregated roles put them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api import tenancy
from trainmaster.api.meta import Object
from trainmaster.auth.contract import AUTHENTICATED, MASTERS, RBAC_GROUP, UNAUTHENTICATED

API_VERSION = f"{RBAC_GROUP}/v1"
BOOTSTRAP_LABEL = "kubernetes.io/bootstrapping"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
ALL = (*READ, *WRITE)

_DISCOVERY = (
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
    "/version/",
)  # fmt: skip
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def _paths(paths: Sequence[str], verbs: Sequence[str] = ("get",)) -> Object:
    return {"nonResourceURLs": list(paths), "verbs": list(verbs)}


def _role(name: str, rules: Sequence[Object], *, into: str = "", aggregates: str = "") -> Object:
    labels = {BOOTSTRAP_LABEL: "rbac-defaults"}
    if into:
        labels[_AGGREGATE + into] = "true"
    role: Object = {
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}},
        "rules": list(rules),
    }
    if aggregates:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + aggregates: "true"}}]}
    return role


def _binding(name: str, role: str, groups: Iterable[str]) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": name,
            "labels": {BOOTSTRAP_LABEL: "rbac-defaults"},
            "annotations": {AUTOUPDATE: "true"},
        },
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups],
    }


_CORE_VIEW = (
    "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status", "persistentvolumeclaims",
    "persistentvolumeclaims/status", "pods", "pods/log", "pods/status", "resourcequotas", "resourcequotas/status",
    "serviceaccounts", "services", "services/status",
)  # fmt: skip
_CORE_EDIT = ("configmaps", "events", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services")
_POD_STREAMS = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")

_VIEW_RULES = (
    _rule([""], _CORE_VIEW, READ),
    _rule(["batch"], ["jobs", "jobs/status"], READ),
    _rule(["events.k8s.io"], ["events"], READ),
)
_EDIT_RULES = (
    _rule([""], ["secrets", "services/proxy", *_POD_STREAMS], READ),
    _rule([""], ["serviceaccounts"], ["impersonate"]),
    _rule([""], ["serviceaccounts/token"], ["create"]),
    _rule([""], [*_CORE_EDIT, *_POD_STREAMS], WRITE),
    _rule([""], ["pods/eviction"], ["create"]),
    _rule(["batch"], ["jobs", "jobs/status"], WRITE),
    _rule(["coordination.k8s.io"], ["leases"], ALL),
)
_ADMIN_RULES = (
    _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
    _rule([RBAC_GROUP], ["rolebindings", "roles"], ALL),
)
_TRAINING = (
    (
        ["trainer.kubeflow.org"],
        ["trainjobs", "trainjobs/status", "trainingruntimes", "clustertrainingruntimes"],
        ["trainjobs", "trainingruntimes"],
    ),
    (["jobset.x-k8s.io"], ["jobsets", "jobsets/status"], ["jobsets"]),
    (
        ["kubeflow.org"],
        [
            f"{kind}jobs{sub}"
            for kind in ("jax", "mpi", "paddle", "pytorch", "tf", "xgboost")
            for sub in ("", "/status")
        ],
        [f"{kind}jobs" for kind in ("jax", "mpi", "paddle", "pytorch", "tf", "xgboost")],
    ),
)


def build_cluster_roles() -> list[Object]:
    return [
        _role("cluster-admin", [_rule(["*"], ["*"], ["*"]), _paths(["*"], ["*"])]),
        _role("admin", [], aggregates="admin"),
        _role("edit", [], aggregates="edit", into="admin"),
        _role("view", [], aggregates="view", into="edit"),
        _role("system:aggregate-to-admin", _ADMIN_RULES, into="admin"),
        _role("system:aggregate-to-edit", _EDIT_RULES, into="edit"),
        _role("system:aggregate-to-view", _VIEW_RULES, into="view"),
        _role("system:aggregated-metrics-reader", [_rule(["metrics.k8s.io"], ["nodes", "pods"], READ)], into="view"),
        _role("trainmaster:training-edit", [_rule(g, write, WRITE) for g, _, write in _TRAINING], into="edit"),
        _role("trainmaster:training-view", [_rule(g, read, READ) for g, read, _ in _TRAINING], into="view"),
        # Whoever may create a TrainJob must be able to see what it can name; a namespaced binding cannot give that.
        _role("trainmaster:runtime-viewer", [_rule(["trainer.kubeflow.org"], ["clustertrainingruntimes"], READ)]),
        _role(tenancy.ROLE, tenancy.build_role_rules()),
        _role("system:discovery", [_paths(_DISCOVERY)]),
        _role("system:public-info-viewer", [_paths(_PUBLIC)]),
        _role("system:monitoring", [_paths(["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz",
                                            "/readyz/*"])]),
        _role(
            "system:basic-user",
            [
                _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
                _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
            ],
        ),
        _role(
            "system:auth-delegator",
            [
                _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
                _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
            ],
        ),
    ]  # fmt: skip


def build_cluster_role_bindings() -> list[Object]:
    return [
        _binding("cluster-admin", "cluster-admin", [MASTERS]),
        _binding("system:discovery", "system:discovery", [AUTHENTICATED]),
        _binding("system:basic-user", "system:basic-user", [AUTHENTICATED]),
        _binding("trainmaster:runtime-viewer", "trainmaster:runtime-viewer", [AUTHENTICATED]),
        _binding("system:public-info-viewer", "system:public-info-viewer", [AUTHENTICATED, UNAUTHENTICATED]),
        _binding("system:monitoring", "system:monitoring", ["system:monitoring"]),
    ]
