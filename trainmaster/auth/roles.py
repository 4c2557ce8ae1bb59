"""The default roles and bindings of every server, as objects: cluster-admin, admin, edit, view and the system roles.

`app` writes missing ones at startup and does not change those that an administrator has edited. Names and contents
follow upstream for the kinds that are served here; the training kinds are added as in the Trainer project's aggregated
roles. What a role grants on a kind is declared with the kind (`Kind.roles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api import tenancy
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import DefaultRole, Kind
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_ROLES, RBAC_GROUP
from trainmaster.auth.contract import AUTHENTICATED, MASTERS, UNAUTHENTICATED

BOOTSTRAP_LABEL = "kubernetes.io/bootstrapping"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"

_DISCOVERY = (
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
    "/version/",
)  # fmt: skip
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_MONITORING = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*")


def build_rules(role: DefaultRole, kinds: Iterable[Kind]) -> list[Object]:
    """What the kinds declare for the role: one rule per group and set of verbs."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kind in kinds:
        for subresource, verbs in kind.roles.get(role, {}).items():
            name = f"{kind.plural}/{subresource}" if subresource else kind.plural
            found.setdefault((kind.group, tuple(verbs)), []).append(name)
    return [_rule(group, names, verbs) for (group, verbs), names in found.items()]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _paths(paths: Sequence[str], verbs: Sequence[str] = ("get",)) -> Object:
    return {"nonResourceURLs": list(paths), "verbs": list(verbs)}


def _role(name: str, rules: Sequence[Object], *, into: str = "", aggregates: str = "") -> Object:
    labels = {BOOTSTRAP_LABEL: "rbac-defaults"}
    if into:
        labels[_AGGREGATE + into] = "true"
    role: Object = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}},
        "rules": list(rules),
    }
    if aggregates:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_AGGREGATE + aggregates: "true"}}]}
    return role


def _binding(name: str, role: str, groups: Iterable[str]) -> Object:
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": name,
            "labels": {BOOTSTRAP_LABEL: "rbac-defaults"},
            "annotations": {AUTOUPDATE: "true"},
        },
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups],
    }


def build_cluster_roles() -> list[Object]:
    kinds = catalogue.build().kinds
    built_in = [kind for kind in kinds if not kind.custom and not kind.measured]
    measured = [kind for kind in kinds if kind.measured]
    training = [kind for kind in kinds if kind.custom]
    return [
        _role("cluster-admin", [_rule("*", ["*"], ["*"]), _paths(["*"], ["*"])]),
        _role("admin", [], aggregates="admin"),
        _role("edit", [], aggregates="edit", into="admin"),
        _role("view", [], aggregates="view", into="edit"),
        _role("system:aggregate-to-admin", build_rules("admin", built_in), into="admin"),
        _role("system:aggregate-to-edit", build_rules("edit", built_in), into="edit"),
        _role("system:aggregate-to-view", build_rules("view", built_in), into="view"),
        _role("system:aggregated-metrics-reader", build_rules("view", measured), into="view"),
        _role("trainmaster:training-edit", build_rules("edit", training), into="edit"),
        _role("trainmaster:training-view", build_rules("view", training), into="view"),
        # Users who can create TrainJobs must be able to see the runtimes of the cluster, which a namespaced binding
        # cannot grant.
        _role("trainmaster:runtime-viewer", build_rules("runtime-viewer", kinds)),
        _role(tenancy.ROLE, build_rules("tenant", kinds)),
        _role("system:discovery", [_paths(_DISCOVERY)]),
        _role("system:public-info-viewer", [_paths(_PUBLIC)]),
        _role("system:monitoring", [_paths(_MONITORING)]),
        _role("system:basic-user", build_rules("basic-user", kinds)),
        _role("system:auth-delegator", build_rules("auth-delegator", kinds)),
    ]


def build_cluster_role_bindings() -> list[Object]:
    return [
        _binding("cluster-admin", "cluster-admin", [MASTERS]),
        _binding("system:discovery", "system:discovery", [AUTHENTICATED]),
        _binding("system:basic-user", "system:basic-user", [AUTHENTICATED]),
        _binding("trainmaster:runtime-viewer", "trainmaster:runtime-viewer", [AUTHENTICATED]),
        _binding("system:public-info-viewer", "system:public-info-viewer", [AUTHENTICATED, UNAUTHENTICATED]),
        _binding("system:monitoring", "system:monitoring", ["system:monitoring"]),
    ]
