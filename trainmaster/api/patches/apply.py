"""Server-side apply: merge a configuration into the stored object, by who owns which field.

`apply` is called by the registry with the stored object (None to create) and the applied configuration. The result
holds the new managedFields; defaults, validation and the rules about status and metadata come after, in the registry.

The rules are upstream's: a configuration claims the fields it names; changing a field of somebody else is a conflict
unless forced; a field that the same manager applied before and does not name now is removed unless somebody else owns
it; equal values are owned together. An apply that changes nothing returns the stored object itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.patches import managed_fields, shapes
from trainmaster.api.patches.comparison import find_owned
from trainmaster.api.patches.field_sets import (
    LEAF,
    FieldSet,
    difference,
    intersection,
    list_paths,
    render,
    union,
    without_branches,
)
from trainmaster.api.patches.managed_fields import APPLY, UPDATE, Entry, Writer
from trainmaster.api.patches.shapes import KEYED, MAP, WHOLE, MergeShape
from trainmaster.api.patches.structures import merge, with_parents, without

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Written by kubectl's client-side apply, which reads it to see what was removed; kept current after a change-over."""
KUBECTL = "kubectl"

_STRIPPED: FieldSet = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {
        ".": LEAF,
        "f:name": LEAF,
        "f:namespace": LEAF,
        "f:creationTimestamp": LEAF,
        "f:selfLink": LEAF,
        "f:uid": LEAF,
        "f:clusterName": LEAF,
        "f:generation": LEAF,
        "f:managedFields": LEAF,
        "f:resourceVersion": LEAF,
    },
}
"""Fields that are never part of managedFields."""

_STATUS: FieldSet = {"f:status": LEAF}
_ALL_BUT_STATUS: FieldSet = {"f:spec": LEAF}
_ALL_BUT_STATUS_CUSTOM: FieldSet = {"f:spec": LEAF, "f:metadata": LEAF}

Conflicts = list[tuple[Entry, FieldSet]]


def apply(kind: Kind, live: Object | None, applied: Object, writer: Writer, force: bool = False) -> Object:
    """The object after the apply. Raises a 409 Conflict that names the managers and fields in the way."""
    check_applied(kind, applied)
    shape = shapes.of_kind(kind)
    base = _unmanaged(live) if live is not None else {}
    entries = _entries_before(kind, live, base, writer)
    own = next((entry for entry in entries if managed_fields.is_entry_of(entry, writer, APPLY)), {})
    others = [entry for entry in entries if entry is not own]
    claimed = without_branches(find_owned(applied, shape) or {}, _ignored(kind, writer.subresource))
    merged = merge(base, applied, shape)
    if own.get("fieldsV1"):
        merged = _prune(merged, own["fieldsV1"], others, claimed, shape)
    if not kind.custom and b"null" in orjson.dumps(applied):
        merged = _without_nulls(merged, shape)
    changed, removed = managed_fields.list_changes(kind, base, merged, writer.subresource)
    if not force:
        _refuse_conflicts(kind, live, others, changed, writer)
    entries = _without_lost(others, changed, removed)
    if claimed := difference(claimed, _STRIPPED):
        time = writer.now if live is None or merged != base else own.get("time")
        entries.append(managed_fields.make_entry(writer, APPLY, claimed, time))
    if writer.manager == KUBECTL:
        merged = _with_last_applied(merged, applied)
    return _finish(live, merged, managed_fields.sort_entries(entries))


def _entries_before(kind: Kind, live: Object | None, base: Object, writer: Writer) -> list[Entry]:
    entries = managed_fields.list_entries(live)
    if entries or live is None:
        return entries
    first = replace(writer, manager=managed_fields.BEFORE_FIRST_APPLY)
    return managed_fields.track_update(kind, None, base, first)


def _without_lost(entries: Sequence[Entry], changed: FieldSet, removed: FieldSet) -> list[Entry]:
    kept: list[Entry] = []
    for entry in entries:
        fields = entry.get("fieldsV1") or {}
        rest = difference(difference(fields, changed), removed)
        if rest:
            kept.append(entry if rest is fields else {**entry, "fieldsV1": rest})
    return kept


def _finish(live: Object | None, merged: Object, entries: list[Entry]) -> Object:
    metadata = dict(merged.get("metadata") or {})
    if entries:
        metadata["managedFields"] = entries
    result = {**merged, "metadata": metadata}
    return live if live is not None and result == live else result


def _unmanaged(obj: Object) -> Object:
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _ignored(kind: Kind, subresource: str) -> FieldSet:
    """Branches that this endpoint does not write, whatever the client sends."""
    if subresource == "status":
        return _ALL_BUT_STATUS_CUSTOM if kind.custom else _ALL_BUT_STATUS
    return _STATUS if kind.status and not subresource else {}


def _prune(merged: Object, last: FieldSet, others: Sequence[Entry], claimed: FieldSet, shape: MergeShape) -> Object:
    """`merged` without what this manager applied last time, does not name now, and nobody else owns."""
    owned = claimed
    for entry in others:
        owned = union(owned, entry.get("fieldsV1") or {})
    last = with_parents(last, shape)
    everything = _named(merged, shape)
    pruned = _named(without(merged, last, shape), shape)
    kept = union(pruned, with_parents(owned, shape))
    pruned = _named(without(merged, difference(everything, kept), shape), shape)
    gone = intersection(difference(everything, pruned), last)
    result: Object = without(merged, gone, shape) or {}
    return result


def _named(obj: Object | None, shape: MergeShape) -> FieldSet:
    return with_parents(find_owned(obj or {}, shape) or {}, shape)


def _without_nulls(value: Any, shape: MergeShape) -> Any:
    """Built-in kinds have no null: a null field is an absent one, a null text in a map is an empty one."""
    if isinstance(value, dict) and shape.form <= MAP:
        out: Object = {}
        for key, inner in value.items():
            entry = shape.fields[key]
            below = entry[1] if entry else shape.item
            if inner is not None:
                out[key] = _without_nulls(inner, below)
            elif entry is None and below.node.type == "string":
                out[key] = ""
        return out
    if isinstance(value, list) and shape.form >= KEYED:
        return [_without_nulls(inner, shape.item) for inner in value]
    return value


# Conflicts.


def _refuse_conflicts(
    kind: Kind, live: Object | None, others: Sequence[Entry], changed: FieldSet, writer: Writer
) -> None:
    conflicts = [(entry, intersection(entry.get("fieldsV1") or {}, changed)) for entry in others]
    conflicts = [(entry, fields) for entry, fields in conflicts if fields]
    if conflicts and live is not None and writer.manager == KUBECTL:
        excused = _applied_by_client(kind, live)
        conflicts = [(entry, rest) for entry, fields in conflicts if (rest := difference(fields, excused))]
    if conflicts:
        raise _conflict(conflicts)


def _applied_by_client(kind: Kind, live: Object) -> FieldSet:
    """What kubectl's client-side apply set and nobody changed since: kubectl may take it over without a conflict."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return {}
    try:
        last = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != kind.api_version:
        return {}
    changed, removed = managed_fields.list_changes(kind, last, live)
    fields = find_owned(last, shapes.of_kind(kind)) or {}
    return difference(difference(fields, changed), removed)


def _conflict(conflicts: Conflicts) -> status.Conflict:
    named = sorted(
        ((_identifier(entry), _manager_text(entry), list(list_paths(fields))) for entry, fields in conflicts)
    )
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for _, manager, paths in named
        for path in paths
    ]
    if len(causes) == 1:
        return status.apply_conflict(
            f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}", causes
        )
    lines = []
    for _, manager, paths in named:
        lines.append(f"conflicts with {manager}:")
        lines.extend(f"- {path}" for path in paths)
    return status.apply_conflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines), causes)


def _identifier(entry: Entry) -> str:
    names = ("manager", "operation") if entry.get("operation") == APPLY else ("manager", "operation", "apiVersion")
    return orjson.dumps({name: entry[name] for name in (*names, "subresource") if entry.get(name)}).decode()


def _manager_text(entry: Entry) -> str:
    text = orjson.dumps(entry.get("manager") or "").decode()
    if entry.get("subresource"):
        text += f" with subresource {orjson.dumps(entry['subresource']).decode()}"
    return f"{text} using {entry.get('apiVersion')}" if entry.get("operation") == UPDATE else text


def _with_last_applied(merged: Object, applied: Object) -> Object:
    """Keeps kubectl's annotation current where it exists, so that a client-side apply can follow."""
    metadata = merged.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return merged
    text = _last_applied(applied)
    return {**merged, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: text}}}


def _last_applied(applied: Object) -> str:
    metadata = dict(applied.get("metadata") or {})
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != LAST_APPLIED}
    text = orjson.dumps({**applied, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode()
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text + "\n"


# What may be applied at all.


def check_applied(kind: Kind, applied: Object) -> None:
    """Refuses configurations of another type, with managedFields, or whose structure the schema does not have."""
    if applied.get("apiVersion") != kind.api_version or applied.get("kind") != kind.kind:
        group, _, version = str(applied.get("apiVersion") or "").rpartition("/")
        raise status.bad_request(f"invalid object type: {group}/{version}, Kind={applied.get('kind') or ''}")
    metadata = applied.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise status.bad_request("metadata must be an object")
    if metadata.get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    problem = _find_problem(applied, shapes.of_kind(kind), "")
    if problem is not None:
        name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        gvk = f"{kind.group}/{kind.version}, Kind={kind.kind}"
        raise status.bad_request(f"failed to create typed patch object ({name}; {gvk}): {problem}")


def _find_problem(value: Any, shape: MergeShape, path: str) -> str | None:
    if value is None or shape.form == WHOLE:
        return None
    if shape.form <= MAP:
        if not isinstance(value, dict):
            return None if shape.node.type == "" else f"{path}: expected map, got {orjson.dumps(value).decode()}"
        for key, inner in value.items():
            entry = shape.fields[key]
            problem = _find_problem(inner, entry[1] if entry else shape.item, f"{path}.{key}")
            if problem is not None:
                return problem
        return None
    if not isinstance(value, list):
        return f"{path}: expected list, got {orjson.dumps(value).decode()}"
    return _find_item_problem(value, shape, path)


def _find_item_problem(values: list[Any], shape: MergeShape, path: str) -> str | None:
    seen: set[str] = set()
    for number, value in enumerate(values):
        element = shape.element_of(value)
        if element is None:
            return f"{path}: element {number}: associative list item cannot be told apart"
        if element in seen:
            return f"{path}: duplicate entries for key {render(element)}"
        seen.add(element)
        problem = _find_problem(value, shape.item, path + render(element))
        if problem is not None:
            return problem
    return None
