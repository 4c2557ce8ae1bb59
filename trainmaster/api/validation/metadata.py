"""Rules about `metadata` that hold for every kind: names, labels, annotations, finalizers, owner references.

What may change on update is the API server's business; here is only what a value may look like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.validation import names

_LARGEST_ANNOTATIONS = 256 * 1024
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most."""
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}


def check(kind: Kind, obj: Object) -> list[FieldError]:
    metadata = obj.get("metadata") or {}
    errors = _check_names(kind, metadata)
    if "generation" in metadata and metadata["generation"] < 0:
        errors.append(
            fields.invalid("metadata.generation", metadata["generation"], "must be greater than or equal to 0")
        )
    if labels := metadata.get("labels"):
        errors += check_labels("metadata.labels", labels)
    if annotations := metadata.get("annotations"):
        errors += check_annotations("metadata.annotations", annotations)
    if references := metadata.get("ownerReferences"):
        errors += _check_owner_references(references)
    if finalizers := metadata.get("finalizers"):
        errors += _check_finalizers(finalizers, custom=kind.custom)
    return errors


def _check_names(kind: Kind, metadata: Mapping[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    complain = names.RULES[kind.name_form]
    if base := metadata.get("generateName"):
        # A suffix follows, so the base may end with a hyphen.
        shown = base[:-1] + "a" if len(base) > 1 and base.endswith("-") else base
        errors += [fields.invalid("metadata.generateName", base, text) for text in complain(shown)]
    name = metadata.get("name")
    if not name:
        errors.append(fields.required("metadata.name", "name or generateName is required"))
    else:
        # Plain loops here and in other rules that every write passes: a comprehension costs a call even when empty.
        for text in complain(name):
            errors.append(fields.invalid("metadata.name", name, text))
    return errors


def check_labels(path: str, labels: Mapping[str, str]) -> list[FieldError]:
    # Without a loop of our own where nothing is wrong: every write passes here.
    if not any(map(names.qualified, labels)) and not any(map(names.label_value, labels.values())):
        return []
    errors: list[FieldError] = []
    for key, value in labels.items():
        if complaints := names.qualified(key):
            errors += [fields.invalid(path, key, text) for text in complaints]
        if complaints := names.label_value(value):
            errors += [fields.invalid(path, value, text) for text in complaints]
    return errors


def _complain_in_any_case(key: str) -> tuple[str, ...]:
    """The case of keys does not matter in annotations, unlike in labels."""
    return names.qualified(key.lower())


def check_annotations(path: str, annotations: Mapping[str, str]) -> list[FieldError]:
    longest = _LONGEST_CHARACTER * (sum(map(len, annotations)) + sum(map(len, annotations.values())))
    if longest <= _LARGEST_ANNOTATIONS and not any(map(_complain_in_any_case, annotations)):
        return []
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        size += len(key) + (len(value) if value.isascii() else len(value.encode()))
        if complaints := _complain_in_any_case(key):
            errors += [fields.invalid(path, key, text) for text in complaints]
    if size > _LARGEST_ANNOTATIONS:
        errors.append(fields.too_long(path, _LARGEST_ANNOTATIONS))
    return errors


def _check_owner_references(references: list[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    path = "metadata.ownerReferences"
    controllers: list[str] = []
    for reference in references:
        version = reference.get("apiVersion", "")
        if not version or version.count("/") > 1:
            errors.append(fields.invalid(f"{path}.apiVersion", version, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not reference.get(name):
                errors.append(fields.invalid(f"{path}.{name}", "", "must not be empty"))
        if version == "v1" and reference.get("kind") == "Event":
            errors.append(fields.invalid(path, reference, "/v1, Kind=Event is disallowed from being an owner"))
        if reference.get("controller"):
            controllers.append(f"{reference.get('kind')}/{reference.get('name')}")
    if len(controllers) > 1:
        found = " and ".join(controllers[:2])
        text = f'Only one reference can have Controller set to true. Found "true" in references for {found}'
        errors.append(fields.invalid(path, references, text))
    return errors


def _check_finalizers(finalizers: list[str], *, custom: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in finalizers:
        errors += [fields.invalid("metadata.finalizers", name, text) for text in names.qualified(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(fields.invalid("metadata.finalizers", finalizers, text))
    if not custom:
        text = "name is neither a standard finalizer name nor is it fully qualified"
        for index, name in enumerate(finalizers):
            if "/" not in name and name not in _STANDARD_FINALIZERS and not names.qualified(name):
                errors.append(fields.invalid(f"metadata.finalizers[{index}]", name, text))
    return errors
