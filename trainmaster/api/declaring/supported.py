"""Which fields of a spec a controller, or the node, carries out. What is not listed is refused by name.

A table maps a field to True (carried out, or without meaning here and upstream), or to a nested table. Lists are
walked through: a table applies to each element. Empty values ({}, [], "", null) ask for nothing and pass. The tables
are made from the fidelity tables: what those call refused is refused, everything else is carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, Union

from trainmaster.api.declaring import fidelity_tables
from trainmaster.api.declaring.kinds import Fidelity, FidelityTable

Table: TypeAlias = Mapping[str, Union[bool, "Table"]]


def _build(rules: FidelityTable, left: Collection[str] = ()) -> Table:
    """`left`: fields whose contents are left to others."""
    return {name: name in left or _read(rule, left) for name, rule in rules.items() if name}


def _read(rule: object, left: Collection[str]) -> bool | Table:
    if isinstance(rule, Mapping):
        return _build(rule, left)
    return (rule[0] if isinstance(rule, tuple) else rule) is not Fidelity.REFUSED


POD = _build(fidelity_tables.POD_SPEC)
JOB = _build(fidelity_tables.JOB_SPEC, ("template",))
"""What a Pod asks for is decided by the node, which knows more than the controllers above it."""
JOB_SET = _build(fidelity_tables.JOB_SET_SPEC, ("template",))
TRAIN_JOB = _build(fidelity_tables.TRAIN_JOB_SPEC, ("podSpecOverrides", "podTemplateOverrides", "runtimePatches"))
RUNTIME = _build(fidelity_tables.RUNTIME_SPEC, ("mlPolicy", "template"))
"""On a cluster the JobSet controller there decides about the template, and embedded our own does. The policy is for the
framework that it names."""


def list_unsupported(value: Any, table: Table, path: str) -> list[str]:
    """Paths of the fields in `value` that the table does not know, in order."""
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
    """Whether a field with this value asks for nothing."""
    return value is None or value is False or (isinstance(value, dict | list | str) and not value)
