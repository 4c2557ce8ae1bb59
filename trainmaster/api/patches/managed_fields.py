"""Who set which field: `metadata.managedFields`, kept up to date on every create, update and patch.

The registry calls `track_update` with the object before and after a write, once defaults are in and before the write is
stored; `apply.apply` does the same work for server-side apply with the helpers here. The rules are upstream's: what a
write changes belongs to the writer alone, what it removes to nobody, what it leaves alone stays with its owners.

This is on the path of every write. Stored sets are used as they are (see `field_sets`), and branches that did not
change are skipped by one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.patches import shapes
from trainmaster.api.patches.comparison import compare_fields
from trainmaster.api.patches.field_sets import FieldSet, difference, find_decoded, union

UPDATE = "Update"
APPLY = "Apply"

MAX_UPDATE_ENTRIES = 10
"""Beyond this, entries of updates are merged, oldest first, into one of this name."""
OLD_UPDATES = "ancient-changes"

BEFORE_FIRST_APPLY = "before-first-apply"
"""Owns what an untracked object held when somebody first applied to it."""

_UNTRACKED = frozenset({"apiVersion", "kind", "metadata"})
_UNTRACKED_METADATA = frozenset(
    {
        "clusterName",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_UNTRACKED_WITH_STATUS = _UNTRACKED | {"status"}
_UNTRACKED_WITH_SPEC = _UNTRACKED | {"spec"}

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, through which version and subresource, and when (RFC 3339, whole seconds, `Z`)."""

    manager: str
    api_version: str
    now: str
    subresource: str = ""


def track_update(kind: Kind, old: Object | None, new: Object, writer: Writer) -> list[Entry]:
    """The managedFields of `new`. `old` is None on create; `new` still holds what the client sent as managedFields."""
    entries = _entries_before(old, new, writer)
    if old is not None and not entries:
        # Ownership of this object was reset; it is tracked again from its first server-side apply.
        return []
    changed, removed = list_changes(kind, old, new, writer.subresource)
    if not changed and not removed:
        return entries
    if not entries:
        return [make_entry(writer, UPDATE, changed, writer.now)] if changed else []
    kept, own = _give_up(entries, changed, removed, writer)
    if changed:
        kept.append(make_entry(writer, UPDATE, union(own, changed), writer.now))
    return sort_entries(_merge_oldest(kept))


def _give_up(
    entries: Sequence[Entry], changed: FieldSet, removed: FieldSet, writer: Writer
) -> tuple[list[Entry], FieldSet]:
    """The entries of the others, less what changed hands, and what the writer's own entry held."""
    kept: list[Entry] = []
    own: FieldSet = {}
    for entry in entries:
        fields = entry.get("fieldsV1") or {}
        rest = difference(difference(fields, changed), removed)
        if changed and is_entry_of(entry, writer, UPDATE):
            own = rest
        elif rest is fields:
            kept.append(entry)
        elif rest:
            kept.append({**entry, "fieldsV1": rest})
    return kept, own


def list_changes(kind: Kind, old: Object | None, new: Object, subresource: str = "") -> tuple[FieldSet, FieldSet]:
    """What a write changed or added, and what it removed, without the fields that are never tracked."""
    shape = shapes.of_kind(kind)
    skipped = _skipped(kind, subresource)
    before = {} if old is None else {key: value for key, value in old.items() if key not in skipped}
    after = {key: value for key, value in new.items() if key not in skipped}
    changed, removed = compare_fields(before, after, shape)
    if subresource and kind.custom:
        return changed, removed
    entry = shape.fields["metadata"]
    if entry is not None:
        more, less = compare_fields(_tracked(old), _tracked(new), entry[1])
        if more:
            changed["f:metadata"] = more
        if less:
            removed["f:metadata"] = less
    return changed, removed


def _tracked(obj: Object | None) -> dict[str, Any]:
    metadata = obj.get("metadata") if obj is not None else None
    if not metadata:
        return {}
    return {key: value for key, value in metadata.items() if key not in _UNTRACKED_METADATA}


def _skipped(kind: Kind, subresource: str) -> frozenset[str]:
    if subresource == "status":
        return _UNTRACKED_WITH_SPEC
    return _UNTRACKED_WITH_STATUS if kind.status and not subresource else _UNTRACKED


def _entries_before(old: Object | None, new: Object, writer: Writer) -> list[Entry]:
    """The entries to start from: the client's, when it sent valid ones, else the stored ones."""
    stored: list[Entry] = list_entries(old)
    metadata = new.get("metadata")
    given = metadata.get("managedFields") if metadata else None
    if given is None or given == stored or writer.subresource:
        return stored
    if _is_reset(given):
        return []
    return find_decoded_entries(given) or stored


def list_entries(obj: Object | None) -> list[Entry]:
    metadata = obj.get("metadata") if obj is not None else None
    return (metadata.get("managedFields") or []) if metadata else []


def _is_reset(given: Any) -> bool:
    return isinstance(given, list) and (not given or (len(given) == 1 and not given[0]))


def find_decoded_entries(given: Any) -> list[Entry] | None:
    """Entries that a client sent, checked and in normal form; None when one is broken (then all are ignored)."""
    if not isinstance(given, list):
        return None
    out: list[Entry] = []
    for raw in given:
        if (
            not isinstance(raw, dict)
            or raw.get("operation") not in (APPLY, UPDATE)
            or raw.get("fieldsType") != "FieldsV1"
        ):
            return None
        texts = [raw.get(name, "") for name in ("manager", "apiVersion", "time", "subresource")]
        fields = find_decoded(raw.get("fieldsV1") or {})
        if (
            fields is None
            or not raw.get("apiVersion")
            or not all(isinstance(text, str) or text is None for text in texts)
        ):
            return None
        if fields:
            out.append({**raw, "fieldsV1": fields})
    return sort_entries(out)


def make_entry(writer: Writer, operation: str, fields: FieldSet, time: str | None) -> Entry:
    entry: Entry = {"manager": writer.manager, "operation": operation, "apiVersion": writer.api_version}
    if time:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry


def is_entry_of(entry: Entry, writer: Writer, operation: str) -> bool:
    """Appliers are one manager whatever version they use; updaters are one per version."""
    return (
        entry.get("manager") == writer.manager
        and entry.get("operation") == operation
        and (entry.get("subresource") or "") == writer.subresource
        and (operation == APPLY or entry.get("apiVersion") == writer.api_version)
    )


def sort_entries(entries: list[Entry]) -> list[Entry]:
    if len(entries) > 1:
        entries.sort(key=_sort_key)
    return entries


def _sort_key(entry: Entry) -> tuple[str, str, str, str, str]:
    get = entry.get
    return (
        entry["operation"],
        get("time") or "",
        get("manager") or "",
        get("apiVersion") or "",
        get("subresource") or "",
    )


def _merge_oldest(entries: list[Entry]) -> list[Entry]:
    updates = sum(1 for entry in entries if entry["operation"] == UPDATE)
    if updates <= MAX_UPDATE_ENTRIES:
        return entries
    kept = [entry for entry in entries if entry["operation"] != UPDATE]
    rest = sorted((entry for entry in entries if entry["operation"] == UPDATE), key=_sort_key)
    buckets: dict[str, int] = {}
    merged: list[Entry] = []
    for position, entry in enumerate(rest):
        version = entry.get("apiVersion") or ""
        first = buckets.get(version)
        if updates <= MAX_UPDATE_ENTRIES:
            merged.extend(rest[position:])
            break
        if first is None:
            buckets[version] = len(merged)
            merged.append(entry)
        else:
            merged[first] = _bucket(merged[first], entry)
            updates -= 1
    return kept + merged


def _bucket(older: Entry, newer: Entry) -> Entry:
    """Two old updates as one; the later of the two times is kept."""
    writer = Writer(OLD_UPDATES, newer.get("apiVersion") or "", "")
    fields = union(newer.get("fieldsV1") or {}, older.get("fieldsV1") or {})
    return make_entry(writer, UPDATE, fields, newer.get("time"))


def keep_times(old: Object, new: Object) -> Object:
    """`new`, with the stored times of its managedFields when nothing else distinguishes it from `old`.

    So a write that changes nothing leaves the object, and its resourceVersion, as they are.
    """
    stored, written = list_entries(old), list_entries(new)
    if stored == written or len(stored) != len(written) or not written:
        return new
    if [_timeless(entry) for entry in stored] != [_timeless(entry) for entry in written]:
        return new
    candidate = {**new, "metadata": {**new["metadata"], "managedFields": stored}}
    return candidate if candidate == old else new


def _timeless(entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if key != "time"}
