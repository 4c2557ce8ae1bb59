"""Which fields of a spec a controller, or the node, carries out. What is not listed is refused by name.

A table maps a field to True (carried out, or without meaning here and upstream), or to a nested table. Lists are
walked through: a table applies to each element. Empty values ({}, [], "", null) ask for nothing and pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, Union

Table: TypeAlias = Mapping[str, Union[bool, "Table"]]


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
