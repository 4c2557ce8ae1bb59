"""RBAC: decides whether an identity may do something, from an index of Roles, ClusterRoles and their bindings.

The index is updated with every change of the policy source. Decisions are cached per identity, and the cache is cleared
on any change, so most requests cost two dictionary lookups. A ClusterRole with an aggregationRule also has the rules of
every ClusterRole that it selects; they are evaluated here, without a controller.

Invariant: a cached decision is never used after the policies it is based on have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_labels
from trainmaster.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLES
from trainmaster.auth.contract import MASTERS, POLICY_KINDS, PolicySource
from trainmaster.client.contract import ActingIdentity

_MAX_IDENTITIES = 1024
_MAX_DECISIONS = 4096

Decision = bool | frozenset[str]
"""True, False, or only for these names."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One PolicyRule, with its lists as sets."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def matches(self, verb: str, group: str, resource: str) -> bool:
        if verb not in self.verbs and "*" not in self.verbs:
            return False
        if group not in self.groups and "*" not in self.groups:
            return False
        resources = self.resources
        if resource in resources or "*" in resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in resources

    def matches_path(self, verb: str, path: str) -> bool:
        if verb not in self.verbs and "*" not in self.verbs:
            return False
        return any(
            path == pattern or (pattern.endswith("*") and path.startswith(pattern[:-1])) for pattern in self.paths
        )


@dataclass(frozen=True, slots=True)
class RoleRef:
    """The role that a binding grants; namespace "" means a ClusterRole."""

    namespace: str
    name: str


def _strings(value: object) -> frozenset[str]:
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()


def parse_rules(raw_rules: object) -> list[AccessRule]:
    rules = []
    for raw in raw_rules if isinstance(raw_rules, list) else []:
        if isinstance(raw, Mapping):
            rules.append(
                AccessRule(
                    _strings(raw.get("verbs")),
                    _strings(raw.get("apiGroups")),
                    _strings(raw.get("resources")),
                    _strings(raw.get("resourceNames")),
                    tuple(sorted(_strings(raw.get("nonResourceURLs")))),
                )
            )
    return rules


def parse_ref(binding: Fields, namespace: str) -> RoleRef:
    ref = read_fields(binding, "roleRef")
    return RoleRef(namespace if ref.get("kind") == "Role" else "", str(ref.get("name", "")))


def subjects(binding: Fields, namespace: str) -> Iterator[tuple[str, str]]:
    """The binding's subjects as ("User" | "Group", name). ServiceAccounts are returned as users."""
    for subject in list_items(binding, "subjects"):
        kind, name = subject.get("kind"), str(subject.get("name", ""))
        if kind == "ServiceAccount":
            yield "User", f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
        elif kind in ("User", "Group"):
            yield kind, name


class RbacAuthorizer:
    """Implements `auth.contract.Authorizer`. Call `close` to stop following the source."""

    def __init__(self, source: PolicySource) -> None:
        self._roles: dict[RoleRef, list[AccessRule]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._aggregates: dict[str, list[Mapping[str, str]]] = {}
        self._bindings: dict[tuple[str, str], tuple[RoleRef, list[tuple[str, str]]]] = {}
        self._granted: dict[str, dict[tuple[str, str], list[RoleRef]]] = {}
        """Namespace ("" for the cluster) to subject to roles."""
        self._decisions: dict[tuple[str, tuple[str, ...]], dict[tuple[str, str, str, str], Decision]] = {}
        for gvr in POLICY_KINDS:
            for obj in source.policies(gvr):
                meta = obj["metadata"]
                self._change(gvr, meta.get("namespace", ""), meta["name"], obj)
        self.close: Callable[[], None] = source.subscribe(self._change)

    # The index

    def _change(self, gvr: GVR, namespace: str, name: str, obj: Object | None) -> None:
        self._decisions.clear()
        if gvr in (ROLES, CLUSTER_ROLES):
            self._change_role(RoleRef(namespace, name), obj)
            return
        key = (namespace if gvr != CLUSTER_ROLE_BINDINGS else "", name)
        old = self._bindings.pop(key, None)
        granted = self._granted.setdefault(key[0], {})
        if old is not None:
            for subject in old[1]:
                granted[subject].remove(old[0])
                if not granted[subject]:
                    del granted[subject]
        if obj is not None:
            ref, who = parse_ref(obj, namespace), list(subjects(obj, namespace))
            self._bindings[key] = (ref, who)
            for subject in who:
                granted.setdefault(subject, []).append(ref)
        if not granted:
            del self._granted[key[0]]

    def _change_role(self, ref: RoleRef, obj: Object | None) -> None:
        if obj is None:
            self._roles.pop(ref, None)
        else:
            self._roles[ref] = parse_rules(obj.get("rules"))
        if ref.namespace:
            return
        self._labels.pop(ref.name, None)
        self._aggregates.pop(ref.name, None)
        if obj is not None:
            self._labels[ref.name] = read_labels(obj)
            selectors = list_items(obj, "aggregationRule", "clusterRoleSelectors")
            labels = [read_fields(selector, "matchLabels") for selector in selectors]
            if any(labels):
                self._aggregates[ref.name] = [wanted for wanted in labels if wanted]

    def rules_of(self, ref: RoleRef, seen: frozenset[str] = frozenset()) -> Iterator[AccessRule]:
        """The rules of a role, including aggregated ones; none if it does not exist."""
        yield from self._roles.get(ref, ())
        if ref.namespace or ref.name not in self._aggregates or ref.name in seen:
            return
        for name, labels in self._labels.items():
            if name != ref.name and any(
                all(labels.get(key) == value for key, value in wanted.items()) for wanted in self._aggregates[ref.name]
            ):
                yield from self.rules_of(RoleRef("", name), seen | {ref.name})

    def has_role(self, ref: RoleRef) -> bool:
        return ref in self._roles

    def _refs(self, identity: ActingIdentity, namespace: str) -> Iterator[RoleRef]:
        """The roles granted to the identity by bindings in this namespace ("" for cluster-wide bindings only)."""
        granted = self._granted.get(namespace)
        if granted is None:
            return
        yield from granted.get(("User", identity.user), ())
        for group in identity.groups:
            yield from granted.get(("Group", group), ())

    def rules_for(self, identity: ActingIdentity, namespace: str) -> Iterator[AccessRule]:
        """All rules that apply to the identity in the namespace, cluster-wide ones first."""
        scopes: Iterable[str] = ("", namespace) if namespace else ("",)
        for scope in scopes:
            for ref in self._refs(identity, scope):
                yield from self.rules_of(ref)

    def missing_roles(self, identity: ActingIdentity, namespace: str) -> list[str]:
        """Bound roles that do not exist, in upstream's words, to explain an unexpected denial."""
        texts = []
        for scope in ("", namespace) if namespace else ("",):
            for ref in self._refs(identity, scope):
                if ref not in self._roles:
                    kind = "role" if ref.namespace else "clusterrole"
                    texts.append(f'{kind}.rbac.authorization.k8s.io "{ref.name}" not found')
        return list(dict.fromkeys(texts))

    # Decisions

    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        mine = self._decisions.get((identity.user, identity.groups))
        if mine is None:
            if len(self._decisions) >= _MAX_IDENTITIES:
                self._decisions.clear()
            mine = self._decisions[identity.user, identity.groups] = {}
        key = (verb, group, resource, namespace)
        decision = mine.get(key)
        if decision is None:
            if len(mine) >= _MAX_DECISIONS:
                mine.clear()
            decision = mine[key] = self._decide(identity, verb, group, resource, namespace)
        if decision is True or decision is False:
            return decision
        return name in decision

    def _decide(self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str) -> Decision:
        if MASTERS in identity.groups:
            return True
        names: set[str] = set()
        for rule in self.rules_for(identity, namespace):
            if rule.matches(verb, group, resource):
                if not rule.names:
                    return True
                names |= rule.names
        return frozenset(names) if names else False

    def allows_path(self, identity: ActingIdentity, verb: str, path: str) -> bool:
        if MASTERS in identity.groups:
            return True
        # Only cluster-wide bindings can grant paths.
        return any(rule.matches_path(verb, path) for rule in self.rules_for(identity, ""))
