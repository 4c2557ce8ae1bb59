"""The stored form of an object: JSON bytes in a fixed field order, so that some fields can be read without parsing.

`dump` writes apiVersion, kind and metadata first, and within metadata the server's own scalar fields before all others.
A field before the first brace inside metadata can be found by a byte search; the `peek_` functions rely on that. At the
start, indexes over 100,000 objects are built this way.

Objects at rest are packed (`at_rest`). Functions that take a record read the note of a packed one instead of its value:
the outline, with the metadata of `_OUTLINED` and the fields that indexes need. Objects that are being deleted are never
packed.

Names of records are "namespace/name", or "name" for cluster-scoped kinds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import orjson

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_labels
from trainmaster.kit.untracked import untrack
from trainmaster.store.contract import Store, StoredRecord

# First the fields that only the server writes, which contain no braces; ownerReferences is the first nested field.
# Names come after it, because those of some kinds may contain any character.
_METADATA_ORDER = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "name",
    "generateName",
    "namespace",
    "finalizers",
    "labels",
    "annotations",
    "managedFields",
)
_TOP = ("apiVersion", "kind", "metadata")
_OUTLINED = ("uid", "ownerReferences")
_OUTLINE_START = b'{"metadata":{"uid":"'

NO_LABELS: Mapping[str, str] = {}


def arrange(obj: Object) -> Object:
    """The object with its fields in the stored order."""
    metadata: Object = obj["metadata"]
    ordered = {name: metadata[name] for name in _METADATA_ORDER if name in metadata}
    if len(ordered) != len(metadata):
        ordered |= metadata
    whole: Object = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": ordered}
    for name, value in obj.items():
        if name not in _TOP:
            whole[name] = value
    return whole


def dump(obj: Object) -> bytes:
    return orjson.dumps(arrange(obj))


def parse(value: bytes) -> Object:
    parsed: Object = orjson.loads(value)
    return parsed


def bucket_of(gvr: GVR) -> str:
    """The bucket of a collection; versions of a kind share it."""
    return gvr.collection


def bucket(kind: Kind) -> str:
    return kind.collection


def record_name(kind: Kind, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if kind.namespaced else name


def split_name(record: str) -> tuple[str, str]:
    """(namespace, name) of a record."""
    namespace, slash, name = record.rpartition("/")
    return (namespace, name) if slash else ("", record)


def scan_in_slices(store: Store, bucket: str, size: int, prefix: str = "") -> Iterator[Sequence[StoredRecord]]:
    """All records, so that others may run, and write, between two slices."""
    after = ""
    while records := store.scan(bucket, prefix, after=after, limit=size):
        yield records
        after = records[-1].name


def dump_outline(obj: Object, more: Fields, due: tuple[float, float] | None) -> bytes:
    """The note of an object at rest. `more`: fields besides metadata; `due`: see `find_due`."""
    metadata = obj["metadata"]
    outline = {"metadata": {name: metadata[name] for name in _OUTLINED if name in metadata}, **more}
    return orjson.dumps(outline if due is None else {**outline, "due": due})


def load_outline(record: StoredRecord) -> Object:
    """The outline of a packed record, with its name."""
    outline = parse(record.note or b"")
    metadata = outline["metadata"]
    namespace, metadata["name"] = split_name(record.name)
    metadata["namespace"] = sys.intern(namespace)
    return outline


_DUE = b',"due":'


def find_due(record: StoredRecord) -> tuple[float, float] | None:
    """When controllers have something to do for a packed object: a Unix time, and how many seconds it is away at most,
    unless the clock was set back."""
    note = record.note or b""
    found = note.rfind(_DUE)
    if found < 0:
        return None
    moment, most = orjson.loads(note[found + len(_DUE) : -1])
    return moment, most


def uid_of(record: StoredRecord) -> str:
    note = record.note
    if note is not None:
        return note[len(_OUTLINE_START) : note.index(b'"', len(_OUTLINE_START))].decode()
    memo: RecordMemo | None = record.memo
    return peek_uid(record.value) if memo is None or memo.obj is None else str(memo.obj["metadata"]["uid"])


def is_deleting(record: StoredRecord) -> bool:
    if record.is_packed:
        return False
    memo: RecordMemo | None = record.memo
    if memo is None or memo.obj is None:
        return bool(peek_deletion(record.value))
    return "deletionTimestamp" in memo.obj["metadata"]


def peek_uid(value: bytes) -> str:
    return _peek(value, b'"uid":"')


def peek_deletion(value: bytes) -> str:
    """deletionTimestamp, or "" if the object is not being deleted."""
    return _peek(value, b'"deletionTimestamp":"')


_START = b'"metadata":{'
_OWNERS = b'"ownerReferences":['
_LABELS = b'"labels":{'


def _end_of_plain(value: bytes) -> int:
    """Where the scalar fields of metadata end."""
    start = value.index(_START) + len(_START)
    opening, closing = value.find(b"{", start), value.index(b"}", start)
    return closing if opening < 0 else min(opening, closing)


def _peek(value: bytes, mark: bytes) -> str:
    found = value.find(mark)
    if found < 0 or found > _end_of_plain(value):
        return ""
    found += len(mark)
    return value[found : value.index(b'"', found)].decode()


def peek_owners(value: bytes) -> list[Object]:
    """metadata.ownerReferences, parsed without the rest of the object."""
    found = value.find(_OWNERS)
    if found < 0 or found > _end_of_plain(value):
        return []
    found += len(_OWNERS) - 1
    end = value.find(b"]", found)
    try:
        owners: list[Object] = orjson.loads(value[found : end + 1])
    except orjson.JSONDecodeError:
        # The slice ended early, at a bracket inside a string.
        owners = parse(value)["metadata"]["ownerReferences"]
    return owners


def has_same_owners(value: bytes, other: bytes) -> bool:
    """Whether the bytes of ownerReferences are equal, as after most writes. Cheaper than parsing them."""
    return _slice_owners(value) == _slice_owners(other)


def _slice_owners(value: bytes) -> bytes:
    found = value.find(_OWNERS)
    if found < 0 or found > _end_of_plain(value):
        return b""
    # The name follows (`_METADATA_ORDER`); inside a string its quotes would be escaped.
    return value[found : value.find(b'],"name":', found)]


def _peek_labels(value: bytes) -> Mapping[str, str]:
    return read_labels(parse(value)) if _LABELS in value else NO_LABELS


class RecordMemo:
    """Cached data about a record. Holds no reference to the record."""

    __slots__ = ("labels", "obj", "same_owners")

    def __init__(self, labels: Mapping[str, str], obj: Object | None = None, *, same_owners: bool = False) -> None:
        self.labels = labels
        """Records without labels share one empty mapping."""
        self.obj = obj
        """The stored object, shared and never changed; None after `parsed.ParsedObjects` has evicted it."""
        self.same_owners = same_owners
        """Whether ownerReferences equal those of the previous record. False may also mean unknown."""
        untrack(self)


def memo_of(record: StoredRecord) -> RecordMemo:
    memo: RecordMemo | None = record.memo
    if memo is None:
        memo = record.memo = RecordMemo(_peek_labels(record.value))
    return memo


def labels_of(record: StoredRecord) -> Mapping[str, str]:
    """The labels, parsed once per record, or each time if it is packed: an outline with labels would be four times as
    large."""
    return memo_of(record).labels if not record.is_packed or record.memo is not None else _peek_labels(record.value)


def owners_of(record: StoredRecord) -> Sequence[Object]:
    note = record.note
    if note is not None:
        owners: Sequence[Object] = parse(note)["metadata"]["ownerReferences"] if _OWNERS in note else ()
        return owners
    memo: RecordMemo | None = record.memo
    if memo is None or memo.obj is None:
        return peek_owners(record.value)
    return memo.obj["metadata"].get("ownerReferences") or ()


def has_owners_of(record: StoredRecord, previous: StoredRecord) -> bool:
    """Whether a write left ownerReferences unchanged."""
    memo: RecordMemo | None = record.memo
    return (memo is not None and memo.same_owners) or has_same_owners(previous.value, record.value)
