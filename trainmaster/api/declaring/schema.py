"""The structure of a field, as a tree of nodes.

`schemas` builds these from the shipped definitions; validation, pruning, strategic merge, server-side apply,
OpenAPI, `explain` and the CRD YAML all read the same tree. A node holds facts only; behaviour lives with its users.
Nodes are shared between kinds and between places in one kind: treat them as read-only, and keep what you derive from
one outside it, keyed by the node (nodes live as long as the process).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CelRule:
    """A CEL rule of a custom kind (x-kubernetes-validations)."""

    rule: str
    message: str
    reason: str = ""
    field_path: str = ""

    @property
    def transition(self) -> bool:
        """Compares with the stored object; checked only where both the old and the new object have the field."""
        return "oldSelf" in self.rule


@dataclass(slots=True, eq=False)
class SchemaNode:
    """Compared by identity, and so usable as a key."""

    type: str = ""
    """object, array, string, integer, number, boolean; "" means any JSON value."""
    format: str = ""
    int_or_string: bool = False
    """IntOrString and Quantity: a number or a string."""
    description: str = ""
    properties: Mapping[str, SchemaNode] = field(default_factory=dict)
    additional: SchemaNode | None = None
    """The value type of a map."""
    items: SchemaNode | None = None
    required: tuple[str, ...] = ()
    enum: tuple[Any, ...] = ()
    default: Any = None
    has_default: bool = False
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    list_type: str = "atomic"
    """atomic, set, or map (keyed by list_map_keys): how server-side apply owns the elements."""
    list_map_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    """An object that server-side apply owns as a whole (x-kubernetes-map-type: atomic)."""
    patch_strategies: tuple[str, ...] = ()
    """Strategic merge of built-in kinds: merge, replace, retainKeys."""
    patch_merge_key: str = ""
    preserve_unknown: bool = False
    rules: tuple[CelRule, ...] = ()
    definition: str = ""
    """Name of the definition this node was made from, for OpenAPI $ref; "" when inline."""
