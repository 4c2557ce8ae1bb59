"""The nodes of a description. Pure data.

Mappings, lists, texts, numbers and flags stand for themselves; between them stand these nodes. In a mapping, what is
absent takes its key with it; in a list, a list is spliced. A mapping or list of which nothing is left is an error,
because a Helm template would say null there: put a condition around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Tree = object
"""A literal, or one of the nodes below, at any depth."""


class LeftOut:
    """The type of `ABSENT`."""


ABSENT: Final = LeftOut()


# ---- values -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """A value by its path, `history.persistence.size`."""

    path: str


ALL_OF = "all"
"""The element of a list that stands for all."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """A list value in which `all` stands for all of these."""

    path: str
    every: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseNamespace:
    """The namespace into which the objects are installed."""


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """The version that is installed."""


@dataclass(frozen=True, slots=True)
class EachItem:
    """What `ForEach` is at."""


# ---- made of them -------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class Text:
    """Literal texts and values, one after the other."""

    parts: tuple[Tree, ...]

    def __init__(self, *parts: Tree) -> None:
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A value, or if it is empty something else."""

    value: Value
    otherwise: Tree


@dataclass(frozen=True, slots=True)
class When:
    condition: Condition
    then: Tree
    otherwise: Tree = ABSENT


@dataclass(frozen=True, slots=True)
class ForEach:
    """A list with one element for each of the items."""

    items: Value | Expanded
    body: Tree


@dataclass(frozen=True, slots=True)
class MergedWith:
    """A mapping: literal entries first, then those of a value, which may not have the same keys."""

    entries: Mapping[str, Tree]
    more: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class NamedPart:
    """Something that is used in several places, or is better read in a place of its own. Not within `ForEach`."""

    name: str
    body: Tree


@dataclass(frozen=True, slots=True)
class Toml:
    """A file of settings, as text: groups of entries, with the entries of a value added to the last group. Keys of a
    group are in alphabetical order."""

    groups: Mapping[str, Mapping[str, Tree]]
    more: Value


@dataclass(frozen=True, slots=True)
class Checksum:
    """SHA-256 of a text without its last line break, in hexadecimal."""

    text: NamedPart


@dataclass(frozen=True, slots=True)
class Document:
    """An object, or several under a condition, and the name of the file in which it belongs, without its ending."""

    file: str
    body: Tree


# ---- conditions ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Given:
    """The value is not null. (A `Value` as a condition: it is neither null, false, 0 nor empty.)"""

    path: str


@dataclass(frozen=True, slots=True)
class Equals:
    path: str
    literal: str | int | bool


@dataclass(frozen=True, slots=True, init=False)
class Has:
    """The list has one of these elements."""

    path: str
    elements: tuple[str, ...]

    def __init__(self, path: str, *elements: str) -> None:
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "elements", elements)


@dataclass(frozen=True, slots=True)
class Exceeds:
    """The number is greater; of a list, its length."""

    path: str
    number: int | Value


@dataclass(frozen=True, slots=True)
class IsNew:
    """In a cluster that can be asked: the object that has no namespace does not exist yet. Otherwise: true."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True, init=False)
class All:
    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)


@dataclass(frozen=True, slots=True, init=False)
class Either:
    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)


Condition = Value | Given | Equals | Has | Exceeds | IsNew | Not | All | Either


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values that contradict one another. The text begins with the key that should be changed."""

    condition: Condition
    text: str
