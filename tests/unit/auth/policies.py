"""RBAC objects in a dictionary, for tests of the authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC_GROUP, ROLE_BINDINGS, ROLES
from trainmaster.auth.contract import PolicyChange


class DictPolicies:
    """Implements `auth.contract.PolicySource`."""

    def __init__(self) -> None:
        self._objects: dict[tuple[GVR, str, str], Object] = {}
        self._changes: list[PolicyChange] = []

    def policies(self, gvr: GVR) -> Iterable[Object]:
        return [obj for (kind, _, _), obj in self._objects.items() if kind == gvr]

    def subscribe(self, change: PolicyChange) -> Callable[[], None]:
        self._changes.append(change)
        return lambda: self._changes.remove(change)

    def put(self, gvr: GVR, obj: Object) -> None:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        self._objects[gvr, namespace, name] = obj
        for change in self._changes:
            change(gvr, namespace, name, obj)

    def delete(self, gvr: GVR, namespace: str, name: str) -> None:
        del self._objects[gvr, namespace, name]
        for change in self._changes:
            change(gvr, namespace, name, None)

    # Builders that also put

    def role(self, name: str, *rules: Object, namespace: str = "", labels: dict[str, str] | None = None,
             aggregate: dict[str, str] | None = None) -> None:  # fmt: skip
        obj: Object = {"metadata": {"name": name, "labels": labels or {}}, "rules": list(rules)}
        if aggregate:
            obj["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": aggregate}]}
        if namespace:
            obj["metadata"]["namespace"] = namespace
        self.put(ROLES if namespace else CLUSTER_ROLES, obj)

    def bind(
        self, role: str, *subjects: tuple[str, str], namespace: str = "", local: bool = False, name: str = ""
    ) -> None:
        obj: Object = {
            "metadata": {"name": name or f"{role}-binding"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role" if local else "ClusterRole", "name": role},
            "subjects": [{"kind": kind, "name": who} for kind, who in subjects],
        }
        if namespace:
            obj["metadata"]["namespace"] = namespace
        self.put(ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS, obj)


def rule(
    verbs: Sequence[str], resources: Sequence[str] = (), groups: Sequence[str] = ("",), **more: Any
) -> dict[str, Any]:
    return {"verbs": list(verbs), "resources": list(resources), "apiGroups": list(groups), **more}
