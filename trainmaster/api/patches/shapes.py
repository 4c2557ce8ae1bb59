"""How field ownership sees an object: which parts are owned one by one and which as a whole.

A `MergeShape` is made from a schema `SchemaNode` and keeps only what comparing objects needs, in the form that is
quickest to walk, because every write walks one. Shapes are made when a field is first met and kept as long as their
node.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.patches.field_sets import key_element, value_element

WHOLE = 0
"""Scalars, atomic lists and atomic maps: owned as one."""
FIELDS = 1
"""An object with named fields."""
MAP = 2
"""An object with free keys; each key is owned on its own."""
KEYED = 3
"""A list whose items are told apart by some of their fields."""
SET = 4
"""A list of distinct scalars."""

_EMBEDDED = ("metadata", "spec", "status", "template")
_EMBEDDED_BY_DEFINITION = {
    "Container": ("resources",),
    "ContainerStatus": ("state", "lastState"),
    "EphemeralContainer": ("resources",),
    "Event": ("involvedObject", "source"),
    "NodeDaemonEndpoints": ("kubeletEndpoint",),
    "NodeStatus": ("daemonEndpoints", "nodeInfo"),
    "PersistentVolumeClaimSpec": ("resources",),
    "PreferredSchedulingTerm": ("preference",),
    "ServiceStatus": ("loadBalancer",),
    "WeightedPodAffinityTerm": ("podAffinityTerm",),
}
"""Built-in kinds embed these objects by value upstream, so to upstream they always exist, be it empty."""


class FieldShapes(dict[str, "tuple[str, MergeShape] | None"]):
    """Field name to (path element, shape), filled on demand; None for a name that the schema does not know."""

    __slots__ = ("_builtin", "_node")

    def __init__(self, node: SchemaNode, builtin: bool) -> None:
        super().__init__()
        self._node = node
        self._builtin = builtin

    def __missing__(self, name: str) -> tuple[str, MergeShape] | None:
        node = self._node.properties.get(name)
        if node is None:
            return None
        entry = self[name] = ("f:" + name, MergeShape(node, self._builtin))
        return entry


class MergeShape:
    __slots__ = ("fields", "form", "implied", "item", "key_defaults", "keys", "node")

    def __init__(self, node: SchemaNode, builtin: bool) -> None:
        self.node = node
        self.fields = FieldShapes(node, builtin)
        self.implied: frozenset[str] = frozenset()
        """FieldShapes that exist even where an object does not show them (built-in kinds)."""
        self.item: MergeShape = self
        """The shape of list items, of map values, and of fields that the schema does not name."""
        self.keys = tuple(sorted(node.list_map_keys))
        self.key_defaults: dict[str, Any] = {}
        self.form = self._form(builtin)
        if self.form == KEYED:
            self._set_key_defaults(builtin)

    def _form(self, builtin: bool) -> int:
        node = self.node
        if node.int_or_string:
            return WHOLE
        if node.type == "array":
            if node.items is None or node.list_type == "atomic":
                return WHOLE
            self.item = MergeShape(node.items, builtin)
            return KEYED if node.list_type == "map" and self.keys else SET
        if node.type not in ("object", "") or node.atomic_map:
            return WHOLE
        if node.additional is not None:
            self.item = MergeShape(node.additional, builtin)
        elif node.type == "object" or node.properties:
            self.item = ANY
        if not node.properties:
            return MAP
        if builtin:
            self.implied = frozenset(node.required) | _embedded(node)
        return FIELDS

    def _set_key_defaults(self, builtin: bool) -> None:
        item = self.item.node
        for key in self.keys:
            field = item.properties.get(key)
            if field is not None and field.has_default:
                self.key_defaults[key] = field.default
            elif builtin and field is not None and field.type == "string" and key in item.required:
                self.key_defaults[key] = ""

    def element_of(self, value: Any) -> str | None:
        """The path element of one item of this list; None when the item cannot be told apart."""
        if self.form == SET:
            return None if isinstance(value, (dict, list)) or value is None else value_element(value)
        if type(value) is not dict:
            return None
        found: dict[str, Any] = {}
        for key in self.keys:
            part = value.get(key)
            if part is None:
                part = self.key_defaults.get(key)
            if part is not None:
                found[key] = part
        return key_element(found) if found else None


def _embedded(node: SchemaNode) -> frozenset[str]:
    names = _EMBEDDED + _EMBEDDED_BY_DEFINITION.get(node.definition.rpartition(".")[2], ())
    return frozenset(name for name in names if name in node.properties and node.properties[name].type == "object")


ANY = MergeShape(SchemaNode(), builtin=False)
"""The shape of what no schema describes: objects by key, all else as a whole."""

_of_kinds: dict[int, tuple[Kind, MergeShape]] = {}


def of_kind(kind: Kind) -> MergeShape:
    """The shape of whole objects of a kind."""
    found = _of_kinds.get(id(kind))
    if found is None:
        found = _of_kinds[id(kind)] = (kind, MergeShape(kind.load(), builtin=not kind.custom))
    return found[1]
