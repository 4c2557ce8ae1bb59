"""RBAC roles and bindings."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import ALL_VERBS, Column, Kind, UpdateRules
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def default_role(role: Object) -> None:
    role.setdefault("rules", [])


def validate_role(new: Object, old: Object | None, *, namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(new.get("rules") or ()):
        errors += _check_rule(rule, f"rules[{index}]", namespaced=namespaced)
    return errors


def _check_rule(rule: Object, path: str, *, namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if not rule.get("verbs"):
        errors.append(fields.required(f"{path}.verbs", "verbs must contain at least one value"))
    paths = rule.get("nonResourceURLs")
    if paths:
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            errors.append(fields.invalid(f"{path}.nonResourceURLs", paths, text))
        elif rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(fields.invalid(f"{path}.nonResourceURLs", paths, text))
        return errors
    if not rule.get("apiGroups"):
        errors.append(fields.required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(fields.required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


def default_binding(binding: Object) -> None:
    reference = binding.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _GROUP


def validate_binding(new: Object, old: Object | None, *, roles: tuple[str, ...], namespaced: bool) -> list[FieldError]:
    reference = new.get("roleRef") or {}
    errors: list[FieldError] = []
    if reference.get("apiGroup") != _GROUP:
        errors.append(fields.not_supported("roleRef.apiGroup", reference.get("apiGroup"), (_GROUP,)))
    if reference.get("kind") not in roles:
        errors.append(fields.not_supported("roleRef.kind", reference.get("kind", ""), roles))
    name = reference.get("name")
    if not name:
        errors.append(fields.required("roleRef.name"))
    else:
        errors += [fields.invalid("roleRef.name", name, text) for text in names.path_segment(name)]
    for index, subject in enumerate(new.get("subjects") or ()):
        errors += _check_subject(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and reference != old.get("roleRef"):
        errors.append(fields.invalid("roleRef", reference, "cannot change roleRef"))
    return errors


def _check_subject(subject: Object, path: str, *, namespaced: bool) -> list[FieldError]:
    name, kind = subject.get("name"), subject.get("kind", "")
    errors = [] if name else [fields.required(f"{path}.name")]
    if kind not in _SUBJECTS:
        return [*errors, fields.not_supported(f"{path}.kind", kind, _SUBJECTS)]
    want = "" if kind == "ServiceAccount" else _GROUP
    if subject.get("apiGroup", "") != want:
        errors.append(fields.not_supported(f"{path}.apiGroup", subject.get("apiGroup", ""), (want,)))
    if kind == "ServiceAccount":
        if name:
            errors += [fields.invalid(f"{path}.name", name, text) for text in names.subdomain(name)]
        if not namespaced and not subject.get("namespace"):
            errors.append(fields.required(f"{path}.namespace"))
    return errors


def _get_role(binding: Object, now: float) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _get_subjects(kind: str, binding: Object, now: float) -> str:
    found = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name')}" for subject in found)
    return ", ".join(str(subject.get("name")) for subject in found)


_BINDING_COLUMNS = (
    cells.NAME,
    Column("Role", _get_role),
    cells.AGE,
    Column("Users", partial(_get_subjects, "User"), priority=1),
    Column("Groups", partial(_get_subjects, "Group"), priority=1),
    Column("ServiceAccounts", partial(_get_subjects, "ServiceAccount"), priority=1),
)


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
    columns=_BINDING_COLUMNS,
    default=default_binding,
    validate=partial(validate_binding, roles=("ClusterRole",), namespaced=False),
    generation=False,
    updates=UpdateRules(creates=True),
    fidelity={**OBJECT, "roleRef": H, "subjects": H},
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
    columns=(cells.NAME, cells.CREATED),
    default=default_role,
    validate=partial(validate_role, namespaced=False),
    generation=False,
    updates=UpdateRules(creates=True),
    fidelity={**OBJECT, "aggregationRule": H, "rules": H},
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
    columns=_BINDING_COLUMNS,
    default=default_binding,
    validate=partial(validate_binding, roles=("Role", "ClusterRole"), namespaced=True),
    generation=False,
    updates=UpdateRules(creates=True),
    roles={"admin": {"": ALL_VERBS}},
    fidelity={**OBJECT, "roleRef": H, "subjects": H},
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
    columns=(cells.NAME, cells.CREATED),
    default=default_role,
    validate=partial(validate_role, namespaced=True),
    generation=False,
    updates=UpdateRules(creates=True),
    roles={"admin": {"": ALL_VERBS}},
    fidelity={**OBJECT, "rules": H},
)

KINDS = (CLUSTER_ROLE_BINDING, CLUSTER_ROLE, ROLE_BINDING, ROLE)
