"""Which fields of a spec the controllers or the node support. Other fields are refused by name.

A table maps a field to True (supported, or without effect here and upstream), or to a nested table. For lists, a table
applies to each element. Empty values ({}, [], "", null) are always accepted. The tables are built from the fidelity
tables: fields marked as refused there are refused, all others are supported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, Union

from trainmaster.api.declaring import fidelity_tables
from trainmaster.api.declaring.kinds import Fidelity, FidelityTable

Table: TypeAlias = Mapping[str, Union[bool, "Table"]]


def _build(rules: FidelityTable, left: Collection[str] = ()) -> Table:
    """`left`: fields whose contents are checked elsewhere."""
    return {name: name in left or _read(rule, left) for name, rule in rules.items() if name}


def _read(rule: object, left: Collection[str]) -> bool | Table:
    if isinstance(rule, Mapping):
        return _build(rule, left)
    return (rule[0] if isinstance(rule, tuple) else rule) is not Fidelity.REFUSED


POD = _build(fidelity_tables.POD_SPEC)
JOB = _build(fidelity_tables.JOB_SPEC, ("template",))
"""The Pod template is checked by the node."""
JOB_SET = _build(fidelity_tables.JOB_SET_SPEC, ("template",))
TRAIN_JOB = _build(fidelity_tables.TRAIN_JOB_SPEC, ("podSpecOverrides", "podTemplateOverrides", "runtimePatches"))
RUNTIME = _build(fidelity_tables.RUNTIME_SPEC, ("mlPolicy", "template"))
"""The JobSet controller checks the template, and the framework checks its policy."""


def list_unsupported(value: Any, table: Table, path: str) -> list[str]:
    """Paths of the fields in `value` that the table does not contain, in order."""
    found: list[str] = []
    if isinstance(value, list):
        for index, item in enumerate(value):
            found.extend(list_unsupported(item, table, f"{path}[{index}]"))
        return found
    if not isinstance(value, dict):
        return found
    for name, item in value.items():
        known = table.get(name, False)
        where = f"{path}.{name}" if path else name
        if known is True:
            continue
        if known is False:
            if not is_empty(item):
                found.append(where)
        elif item:
            found.extend(list_unsupported(item, known, where))
    return found


def is_empty(value: Any) -> bool:
    """Whether a field with this value has no effect."""
    return value is None or value is False or (isinstance(value, dict | list | str) and not value)
