"""Roles and bindings: who may do what."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

CLUSTER_ROLE_BINDING = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    singular="clusterrolebinding",
    namespaced=False,
    definition="io.k8s.api.rbac.v1.ClusterRoleBinding",
    load=partial(load, "io.k8s.api.rbac.v1.ClusterRoleBinding"),
    name_form="path",
    generation=False,
)

CLUSTER_ROLE = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRole",
    plural="clusterroles",
    singular="clusterrole",
    namespaced=False,
    definition="io.k8s.api.rbac.v1.ClusterRole",
    load=partial(load, "io.k8s.api.rbac.v1.ClusterRole"),
    name_form="path",
    generation=False,
)

ROLE_BINDING = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="RoleBinding",
    plural="rolebindings",
    singular="rolebinding",
    namespaced=True,
    definition="io.k8s.api.rbac.v1.RoleBinding",
    load=partial(load, "io.k8s.api.rbac.v1.RoleBinding"),
    name_form="path",
    generation=False,
)

ROLE = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="Role",
    plural="roles",
    singular="role",
    namespaced=True,
    definition="io.k8s.api.rbac.v1.Role",
    load=partial(load, "io.k8s.api.rbac.v1.Role"),
    name_form="path",
    generation=False,
)

KINDS = (
    CLUSTER_ROLE_BINDING,
    CLUSTER_ROLE,
    ROLE_BINDING,
    ROLE,
)
