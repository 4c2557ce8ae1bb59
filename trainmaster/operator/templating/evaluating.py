"""Makes objects of a description (`nodes`) and values. Pure.

Texts that Helm would build with its own functions are built to the same bytes: `toJson` escapes what HTML would read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from trainmaster.api.meta import Object
from trainmaster.operator.templating.nodes import (
    ABSENT,
    ALL_OF,
    All,
    Checksum,
    Condition,
    Document,
    EachItem,
    Either,
    Equals,
    Exceeds,
    Expanded,
    Fallback,
    ForEach,
    Given,
    Has,
    IsNew,
    MergedWith,
    NamedPart,
    Not,
    ReleaseNamespace,
    ReleaseVersion,
    Text,
    Toml,
    Tree,
    Value,
    When,
)
from trainmaster.version import __version__

_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class ValueScope:
    """What a description is about."""

    values: Mapping[str, object]
    namespace: str
    version: str = __version__
    item: object = None

    def find(self, path: str) -> object:
        """Raises KeyError if no such value is declared."""
        found: object = self.values
        for part in path.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise KeyError(f"there is no value {path}")
            found = found[part]
        return found

    def list(self, items: Value | Expanded) -> list[object]:
        found = self.find(items.path)
        assert isinstance(found, Sequence), f"{items.path} is a list"
        return list(items.every) if isinstance(items, Expanded) and ALL_OF in found else list(found)


def evaluate_all(documents: Iterable[Document], scope: ValueScope) -> list[Object]:
    found: list[Object] = []
    for document in documents:
        made = evaluate(document.body, scope)
        if made is not ABSENT:
            found += cast(list[Object], made if isinstance(made, list) else [made])
    return found


def evaluate(tree: Tree, scope: ValueScope) -> object:
    """`ABSENT` if a condition says so."""
    match tree:
        case Mapping():
            return _keep({key: evaluate(child, scope) for key, child in tree.items()}, tree)
        case list() | tuple():
            return _splice([evaluate(child, scope) for child in tree], tree)
        case When():
            return evaluate(tree.then if is_true(tree.condition, scope) else tree.otherwise, scope)
        case ForEach():
            made = (evaluate(tree.body, dataclasses.replace(scope, item=item)) for item in scope.list(tree.items))
            return [one for one in made if one is not ABSENT]
        case MergedWith():
            return _merge(tree, scope)
        case NamedPart():
            return evaluate(tree.body, scope)
        case Value():
            return scope.find(tree.path)
        case Expanded():
            return scope.list(tree)
        case _:
            return _evaluate_text(tree, scope)


def _evaluate_text(tree: Tree, scope: ValueScope) -> object:
    match tree:
        case Text():
            return "".join(str(evaluate(part, scope)) for part in tree.parts)
        case Fallback():
            return scope.find(tree.value.path) or evaluate(tree.otherwise, scope)
        case ReleaseNamespace():
            return scope.namespace
        case ReleaseVersion():
            return scope.version
        case EachItem():
            return scope.item
        case Toml():
            return _write_settings(tree, scope)
        case Checksum():
            return hashlib.sha256(str(evaluate(tree.text, scope)).removesuffix("\n").encode()).hexdigest()
    return tree


def is_true(condition: Condition, scope: ValueScope) -> bool:
    match condition:
        case Value():
            return bool(scope.find(condition.path))
        case Given():
            return scope.find(condition.path) is not None
        case Equals():
            return scope.find(condition.path) == condition.literal
        case Has():
            found = scope.list(Value(condition.path))
            return any(element in found for element in condition.elements)
        case Exceeds():
            return _count(Value(condition.path), scope) > _count(condition.number, scope)
        case IsNew():
            return True
        case Not():
            return not is_true(condition.condition, scope)
        case All():
            return all(is_true(one, scope) for one in condition.conditions)
        case Either():
            return any(is_true(one, scope) for one in condition.conditions)


def _count(tree: Tree, scope: ValueScope) -> int:
    found = evaluate(tree, scope)
    if isinstance(found, list | tuple):
        return len(found)
    assert isinstance(found, int), f"{tree} is a number"
    return found


def _keep(made: Mapping[str, object], tree: Mapping[str, Tree]) -> Object:
    kept = {key: value for key, value in made.items() if value is not ABSENT}
    if tree and not kept:
        raise AssertionError(f"nothing is left of a mapping with {', '.join(tree)}")
    return kept


def _splice(made: list[object], tree: Sequence[Tree]) -> list[object]:
    kept: list[object] = []
    for one in made:
        if one is not ABSENT:
            kept += one if isinstance(one, list) else [one]
    if tree and not kept:
        raise AssertionError("nothing is left of a list with elements")
    return kept


def _merge(tree: MergedWith, scope: ValueScope) -> Object:
    made = dict(_keep({key: evaluate(child, scope) for key, child in tree.entries.items()}, tree.entries))
    for value in tree.more:
        found = scope.find(value.path)
        assert isinstance(found, Mapping), f"{value.path} is a mapping"
        made |= found
    return made


def _write_settings(tree: Toml, scope: ValueScope) -> str:
    groups = {name: dict(_keep(_evaluate_entries(entries, scope), entries)) for name, entries in tree.groups.items()}
    more = scope.find(tree.more.path)
    assert isinstance(more, Mapping), f"{tree.more.path} is a mapping"
    groups[list(groups)[-1]].update(more)
    texts = []
    for name, entries in groups.items():
        texts.append("".join([f"[{name}]\n", *(f"{key} = {write_json(entries[key])}\n" for key in sorted(entries))]))
    return "\n".join(texts)


def _evaluate_entries(entries: Mapping[str, Tree], scope: ValueScope) -> dict[str, object]:
    return {key: evaluate(child, scope) for key, child in entries.items()}


def write_json(value: object) -> str:
    """As Helm's `toJson`, for which all numbers are floating-point."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, tuple):
        value = list(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)
