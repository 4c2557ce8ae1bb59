"""How embedded mode handles each field of each kind.

Every field has exactly one class: honoured, approximated (an event says so), refused (an error names it), or inert
(without meaning on one machine, and harmless). `classify(kind)` walks a kind's schema beside its table
(`Kind.fidelity`); a class on a field covers everything below it, unless the table goes into it. A field that no table
knows is an error: `unclassified` lists them, and a test keeps the list empty. `docs/fidelity.md` is generated from
here by `tools/generate_docs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api import code
from trainmaster.api.declaring.kinds import Fidelity, FidelityTable, Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.declaring.supported import is_empty
from trainmaster.api.meta import Object

ANY = "*"
"""In a table, the entry for all values of a map."""
_ACCEPTED = {
    ".csi.driver": (code.DRIVER,),
    ".mountPropagation": (None, "", "None"),
    ".recursiveReadOnly": (None, "", "Disabled"),
}
"""Path suffixes, and the values that the node supports there; all others are refused."""


@dataclass(frozen=True, slots=True)
class Classed:
    """A field, or a whole subtree if the table has no entries below it."""

    path: str
    fidelity: Fidelity
    note: str = ""


def find_class(kind: Kind, path: str) -> Fidelity | None:
    """The class of a field given by its path without list positions, such as `spec.template.spec.dnsPolicy`."""
    entry: Any = kind.fidelity
    for step in path.split("."):
        if not isinstance(entry, Mapping):
            break
        entry = entry.get(step, entry.get(ANY))
    if isinstance(entry, Mapping):
        entry = entry.get("")
    found = _split(entry)
    return found[0] if found else None


def classify(kind: Kind) -> Iterator[Classed]:
    """Every entry of the kind's table, in the order of the schema."""
    yield from _walk(kind.load(), kind.fidelity, "")


def list_used(kind: Kind, obj: Object) -> Iterator[Classed]:
    """The class of every field that an object uses, by its path with list positions. A refused field that asks for
    nothing (`privileged: false`) passes, as it does when a job runs. Fields without a class are for the schema."""
    yield from _walk_used(obj, kind.fidelity, "")


def _walk_used(value: Any, table: FidelityTable, path: str) -> Iterator[Classed]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk_used(item, table, f"{path}[{index}]")
    if not isinstance(value, Mapping):
        return
    for name, item in value.items():
        entry = table.get(name, table.get(ANY))
        where = f"{path}.{name}" if path else str(name)
        own = _split(entry.get("") if isinstance(entry, Mapping) else entry)
        if own and own[0] is Fidelity.APPROXIMATED and not _is_accepted(where, item):
            own = (Fidelity.REFUSED, own[1])
        if own and (own[0] is not Fidelity.REFUSED or not is_empty(item)):
            yield Classed(where, *own)
        if isinstance(entry, Mapping):
            yield from _walk_used(item, entry, where)


def _is_accepted(path: str, value: Any) -> bool:
    """False for an unsupported value of a supported field."""
    return all(value in accepted for tail, accepted in _ACCEPTED.items() if path.endswith(tail))


def unclassified(kind: Kind) -> list[str]:
    """Fields in the schema without a class, and entries of the table without a field."""
    return _compare(kind.load(), kind.fidelity, "")


def _walk(node: SchemaNode, table: FidelityTable, path: str) -> Iterator[Classed]:
    for name, child in _fields(node).items():
        entry = table.get(name)
        where = f"{path}.{name}" if path else name
        if isinstance(entry, Mapping):
            if own := _split(entry.get("")):
                yield Classed(where, *own)
            yield from _walk(child, entry, where)
        elif own := _split(entry):
            yield Classed(where, *own)


def _compare(node: SchemaNode, table: FidelityTable, path: str) -> list[str]:
    found: list[str] = []
    known = _fields(node)
    for name, child in known.items():
        where = f"{path}.{name}" if path else name
        entry = table.get(name)
        if entry is None:
            found.append(where)
        elif isinstance(entry, Mapping):
            found += _compare(child, entry, where)
    found += [f"{path}.{name} (not in the schema)" for name in table if name and name not in known]
    return found


def _fields(node: SchemaNode) -> Mapping[str, SchemaNode]:
    """The fields of an object, or of the elements of a list. The values of a map of objects are the field `*`."""
    while node.items is not None:
        node = node.items
    if node.additional is not None and node.additional.properties:
        return {ANY: node.additional}
    return node.properties


def _split(entry: Any) -> tuple[Fidelity, str] | None:
    if isinstance(entry, Fidelity):
        return entry, ""
    return entry if isinstance(entry, tuple) else None
