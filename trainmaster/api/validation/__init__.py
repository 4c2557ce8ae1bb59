"""Validation of complete, defaulted objects, with a list of field errors as the result.

`validate` is what the API server calls before a write is stored: metadata first, then the schema and rules of custom
kinds, then the rules that a kind declares for itself. It collects all errors and never raises. `old` is the stored
object, or None on create.
"""

from __future__ import annotations

from trainmaster.api import fields
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.validation import metadata, quick, rules, structural

_OUTSIDE = ("apiVersion", "kind", "metadata")
"""Parts of an object that its schema does not cover."""


def validate(kind: Kind, new: Object, old: Object | None, *, subresource: str = "") -> list[FieldError]:
    """The errors of `new`. With subresource "status" only the status is checked."""
    if subresource == "status":
        errors = _check_custom_status(kind, new) if kind.custom else []
        return errors + kind.validate_status(new, old)
    errors = [] if kind.review else metadata.check(kind, new)
    if kind.custom:
        errors += _check_custom(kind, new, old, errors)
        if errors:
            # Our own rules assume a valid structure.
            return errors
    return errors + kind.validate(new, old)


def _check_custom(kind: Kind, new: Object, old: Object | None, before: list[FieldError]) -> list[FieldError]:
    node = kind.load()
    errors: list[FieldError] = []
    for name, child in node.properties.items():
        if name in new and name not in _OUTSIDE and not quick.satisfies(child, new[name]):
            errors += structural.check(child, new[name], name, body=name)
    errors += [fields.required(name) for name in node.required if name not in new]
    if kind.scale is not None:
        from trainmaster.api import scale  # noqa: PLC0415 - few kinds can be scaled

        errors += scale.check_replicas(kind.scale, new)
    if structural.blocks_rules(before + errors):
        return [*errors, structural.UNCHECKED]
    return errors + (rules.check(node, new) if old is None else rules.check(node, new, old))


def _check_custom_status(kind: Kind, new: Object) -> list[FieldError]:
    node = kind.load().properties.get("status")
    if node is None or "status" not in new:
        return []
    if quick.satisfies(node, new["status"]):
        return rules.check(node, new["status"], path="status")
    errors = structural.check(node, new["status"], "status", body="")
    if structural.blocks_rules(errors):
        return [*errors, structural.UNCHECKED]
    return errors + rules.check(node, new["status"], path="status")
