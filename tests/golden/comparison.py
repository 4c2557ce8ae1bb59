"""Field by field: what upstream's objects have and ours do not, and the other way round.

Objects are paired by moment, kind and name; lists of named things by their names, with the order as a field of its
own, so that one missing variable is one line and not twenty.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.golden.masking import Captures, Object

WHOLE = "(object)"
"""The path of a difference where one side lacks the whole object."""
_ABSENT = object()
_KEYS = ("name", "type", "containerPort", "key")


@dataclass(frozen=True, slots=True)
class Difference:
    moment: str
    kind: str
    name: str
    path: str
    upstream: str
    ours: str

    def __str__(self) -> str:
        head = f"{self.moment} {self.kind} {self.name}: {self.path}"
        return f"{head}\n    upstream: {self.upstream}\n    ours:     {self.ours}"


def compare(upstream: Captures, ours: Captures) -> list[Difference]:
    found: list[Difference] = []
    for moment, objects in upstream.items():
        pairs = _pair(objects, ours.get(moment, []))
        for (kind, name), theirs, mine in pairs:
            found.extend(
                Difference(moment, kind, name, path, _show(want), _show(got))
                for path, want, got in _walk("", theirs, mine)
            )
    return found


def compare_events(upstream: Sequence[Object], ours: Sequence[Object]) -> list[Difference]:
    """Events as objects of their own: the kind is that of the object they are about, the path the event's reason."""

    def key(event: Object) -> tuple[str, str, str]:
        return (event["about"], event["name"], event["reason"])

    theirs, mine = {key(event): event for event in upstream}, {key(event): event for event in ours}
    found = []
    for about, name, reason in sorted({*theirs, *mine}):
        want, got = theirs.get((about, name, reason)), mine.get((about, name, reason))
        if want == got:
            continue
        shown = [_show_event(event) for event in (want, got)]
        found.append(Difference("events", about, name, f"event {reason}", shown[0], shown[1]))
    return found


def matches(pattern: str, text: str) -> bool:
    """Shell patterns in which brackets stand for themselves."""
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def _show_event(event: Object | None) -> str:
    if event is None:
        return "(none)"
    return f"{event['type']} " + "; ".join(f"{count} x {text}" for text, count in sorted(event["messages"].items()))


def _pair(
    upstream: Iterable[Object], ours: Iterable[Object]
) -> Iterator[tuple[tuple[str, str], Object | object, Object | object]]:
    theirs, mine = _group(upstream), _group(ours)
    for key in sorted({*theirs, *mine}):
        left, right = theirs.get(key, []), mine.get(key, [])
        for index in range(max(len(left), len(right))):
            yield (
                key,
                left[index] if index < len(left) else _ABSENT,
                right[index] if index < len(right) else _ABSENT,
            )


def _group(objects: Iterable[Object]) -> dict[tuple[str, str], list[Object]]:
    found: dict[tuple[str, str], list[Object]] = {}
    for obj in objects:
        group = obj["apiVersion"].partition("/")[0] + "/" if obj["kind"] == "PodGroup" else ""
        found.setdefault((group + obj["kind"], obj["metadata"]["name"]), []).append(obj)
    return found


def _walk(path: str, want: Any, got: Any) -> Iterator[tuple[str, Any, Any]]:
    if want == got and type(want) is type(got):
        return
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted({*want, *got}):
            yield from _walk(_join(path, key), want.get(key, _ABSENT), got.get(key, _ABSENT))
    elif isinstance(want, list) and isinstance(got, list):
        yield from _walk_list(path, want, got)
    else:
        yield (path or WHOLE, want, got)


def _walk_list(path: str, want: list[Any], got: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    key = _find_key([*want, *got])
    if key is None or _has_twins(want, key) or _has_twins(got, key):
        for index in range(max(len(want), len(got))):
            left = want[index] if index < len(want) else _ABSENT
            right = got[index] if index < len(got) else _ABSENT
            yield from _walk(f"{path}[{index}]", left, right)
        return
    theirs, mine = {str(entry[key]): entry for entry in want}, {str(entry[key]): entry for entry in got}
    for name in sorted({*theirs, *mine}):
        yield from _walk(f"{path}[{name}]", theirs.get(name, _ABSENT), mine.get(name, _ABSENT))
    common = [name for name in theirs if name in mine]
    if common != [name for name in mine if name in theirs]:
        yield (f"{path}(order)", list(theirs), list(mine))


def _find_key(entries: Sequence[Any]) -> str | None:
    for key in _KEYS:
        if entries and all(isinstance(entry, Mapping) and key in entry for entry in entries):
            return key
    return None


def _has_twins(entries: Sequence[Mapping[str, Any]], key: str) -> bool:
    return len({str(entry[key]) for entry in entries}) < len(entries)


def _join(path: str, key: str) -> str:
    if any(character in key for character in "./"):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "(none)"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 300 else text[:297] + "..."
