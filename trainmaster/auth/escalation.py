"""Prevents privilege escalation: the check that upstream performs on writes of Roles and bindings.

A role may contain only rules that its writer has, unless the writer has the verb `escalate` on it; a binding may refer
only to a role whose rules the writer has, unless the writer has `bind`. Members of system:masters may do both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api import status
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC_GROUP, ROLE_BINDINGS, ROLES
from trainmaster.auth.contract import MASTERS
from trainmaster.auth.rbac import AccessRule, RbacAuthorizer, parse_ref, parse_rules
from trainmaster.client.contract import ActingIdentity


def check_write(
    authorizer: RbacAuthorizer, identity: ActingIdentity, gvr: GVR, namespace: str, new: Object, old: Object | None
) -> None:
    """Raises StatusError 403 if the write would grant more than the writer has."""
    if gvr.group != RBAC_GROUP or MASTERS in identity.groups:
        return
    name = read_text(new, "metadata", "name")
    if gvr in (ROLES, CLUSTER_ROLES):
        if old is not None and old.get("rules") == new.get("rules") and _selectors(old) == _selectors(new):
            return
        if authorizer.allows(identity, "escalate", RBAC_GROUP, gvr.plural, namespace, name):
            return
        if _selectors(new) and not _covers(authorizer, identity, namespace, [_EVERYTHING]):
            raise _refusal(gvr, name, identity, "must have cluster-admin privileges to use the aggregationRule", [])
        wanted = parse_rules(new.get("rules"))
    elif gvr in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
        same = ("roleRef", "subjects")
        if old is not None and all(old.get(key) == new.get(key) for key in same):
            return
        role = parse_ref(new, namespace)
        roles = ROLES if role.namespace else CLUSTER_ROLES
        if authorizer.allows(identity, "bind", roles.group, roles.plural, namespace, role.name):
            return
        if not authorizer.has_role(role):
            raise status.not_found(roles, role.name)
        wanted = list(authorizer.rules_of(role))
    else:
        return
    missing = _list_missing(authorizer, identity, namespace, wanted)
    if missing:
        raise _refusal(gvr, name, identity, "is attempting to grant RBAC permissions not currently held", missing)


_EVERYTHING = AccessRule(frozenset({"*"}), frozenset({"*"}), frozenset({"*"}))


def _selectors(role: Object) -> Sequence[Fields]:
    return list_items(role, "aggregationRule", "clusterRoleSelectors")


def _refusal(
    gvr: GVR, name: str, identity: ActingIdentity, what: str, missing: Sequence[AccessRule]
) -> status.StatusError:
    groups = " ".join(f'"{group}"' for group in identity.groups)
    text = f'user "{identity.user}" (groups=[{groups}]) {what}'
    if missing:
        text += ":\n" + "\n".join(_describe(rule) for rule in missing)
    return status.forbidden(gvr, name, text)


def _describe(rule: AccessRule) -> str:
    """A rule as upstream prints it: {APIGroups:[""], Resources:["pods"], Verbs:["get"]}."""

    def quoted(values: Iterable[str]) -> str:
        return "[" + " ".join(f'"{value}"' for value in sorted(values)) + "]"

    parts = []
    if rule.paths:
        parts.append(f"NonResourceURLs:{quoted(rule.paths)}")
    else:
        parts += [f"APIGroups:{quoted(rule.groups)}", f"Resources:{quoted(rule.resources)}"]
        if rule.names:
            parts.append(f"ResourceNames:{quoted(rule.names)}")
    parts.append(f"Verbs:{quoted(rule.verbs)}")
    return "{" + ", ".join(parts) + "}"


def _breakdown(rule: AccessRule) -> Iterable[AccessRule]:
    """The rule split into single grants: one verb, one group and resource, one name (or path)."""
    for verb in sorted(rule.verbs):
        for path in rule.paths:
            yield AccessRule(frozenset({verb}), paths=(path,))
        for group in sorted(rule.groups):
            for resource in sorted(rule.resources):
                for name in sorted(rule.names) or [""]:
                    names = frozenset({name}) if name else frozenset()
                    yield AccessRule(frozenset({verb}), frozenset({group}), frozenset({resource}), names)


def _is_held(grant: AccessRule, held: Sequence[AccessRule]) -> bool:
    (verb,) = grant.verbs
    if grant.paths:
        return any(rule.matches_path(verb, grant.paths[0]) for rule in held)
    (group,), (resource,) = grant.groups, grant.resources
    return any(
        rule.matches(verb, group, resource) and (not rule.names or (grant.names and grant.names <= rule.names))
        for rule in held
    )


def _list_missing(
    authorizer: RbacAuthorizer, identity: ActingIdentity, namespace: str, wanted: Iterable[AccessRule]
) -> list[AccessRule]:
    held = list(authorizer.rules_for(identity, namespace))
    missing = []
    for rule in wanted:
        verbs = {verb for grant in _breakdown(rule) if not _is_held(grant, held) for verb in grant.verbs}
        if verbs:
            missing.append(AccessRule(frozenset(verbs), rule.groups, rule.resources, rule.names, rule.paths))
    return missing


def _covers(authorizer: RbacAuthorizer, identity: ActingIdentity, namespace: str, wanted: Iterable[AccessRule]) -> bool:
    return not _list_missing(authorizer, identity, namespace, wanted)
