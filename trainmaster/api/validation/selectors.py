"""Rules about selectors in objects (LabelSelector, and the requirements of a node affinity)."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.validation import names
from trainmaster.api.validation.metadata import check_labels

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")


def check_label_selector(selector: Object, path: str) -> list[FieldError]:
    errors = check_labels(f"{path}.matchLabels", selector.get("matchLabels") or {})
    for index, entry in enumerate(selector.get("matchExpressions") or ()):
        where, key, values = f"{path}.matchExpressions[{index}]", entry.get("key", ""), entry.get("values") or []
        errors += check_operator(entry.get("operator", ""), values, where)
        errors += [fields.invalid(f"{where}.key", key, text) for text in names.qualified(key)]
        errors += [
            fields.invalid(f"{where}.values[{number}]", value, text)
            for number, value in enumerate(values)
            for text in names.label_value(value)
        ]
    return errors


def check_operator(operator: str, values: Sequence[str], path: str) -> list[FieldError]:
    if operator in _WITH_VALUES:
        text = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [fields.required(f"{path}.values", text)]
    if operator in _WITHOUT_VALUES:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [fields.forbidden(f"{path}.values", text)] if values else []
    return [fields.invalid(f"{path}.operator", operator, "not a valid selector operator")]
