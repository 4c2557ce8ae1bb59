"""The store protocol: a dense, revisioned log of byte values with the current state in memory.

Every write gets the next revision. Reads, writes and transactions are synchronous, because the current state is in
memory and the process is single-threaded; only durability is asynchronous. External synchrony: code inside the process
may act on a write immediately, but before anything leaves the process (a response, an event to an outside watcher, a
process start), `durable(revision)` must be awaited.

Keys are (bucket, name). A bucket is one collection ("batch/jobs"), a name is "namespace/name". Each bucket has its own
replay window, so that a quiet collection does not lose its history to a busy one.

    StoreError
    ├── Mismatch        a compare-and-set met another revision (or an existing / missing key)
    ├── Compacted       the asked-for revision is below the replay window, or above the newest revision
    ├── Lagging         a watcher did not keep up and was dropped; list again
    ├── Locked          another process has the file open
    ├── NewerSchema     the file was written by a newer version
    └── NoSpace         the disk is full: nothing can be written until there is room
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class StoreError(Exception):
    pass


class Mismatch(StoreError):
    """`current` is the existing record, or None."""

    def __init__(self, bucket: str, name: str, current: StoredRecord | None) -> None:
        super().__init__(f"{bucket}/{name}: another revision is current")
        self.bucket = bucket
        self.name = name
        self.current = current


class Compacted(StoreError):
    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} is not available, oldest is {oldest}")
        self.asked = asked
        self.oldest = oldest


class Lagging(StoreError):
    pass


class Locked(StoreError):
    pass


class NewerSchema(StoreError):
    pass


class NoSpace(StoreError):
    pass


class Absent(Enum):
    """`expect=ABSENT`: the key must not exist (create)."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


class StoredRecord:
    """A stored value. Immutable except for `memo`, where readers may cache something small that they derived from it.

    The memo must not refer back to the record, because the cycle collector ignores records.
    """

    __slots__ = ("bucket", "created", "memo", "name", "revision", "value")

    is_packed = False
    """See `packing`."""

    def __init__(self, bucket: str, name: str, revision: int, created: int, value: bytes, memo: object = None) -> None:
        self.bucket = bucket
        self.name = name
        self.revision = revision
        """The revision of the last write."""
        self.created = created
        """The revision of the write that created the key."""
        self.value = value
        self.memo: Any = memo

    @property
    def note(self) -> bytes | None:
        """What was noted about the value when it was packed (`packing`); None if it is not packed."""
        return None

    @property
    def size(self) -> int:
        """The length of the value."""
        return len(self.value)


class EventType(Enum):
    PUT = "put"
    DELETE = "delete"


@dataclass(slots=True)
class Event:
    """One write as watchers see it. For DELETE, `record` holds the final value with the revision of the deletion.

    Treat it as immutable; not frozen, because creating a frozen one takes twice as long.
    """

    type: EventType
    record: StoredRecord
    previous: StoredRecord | None
    """The previous record; None for a creation."""

    @property
    def revision(self) -> int:
        return self.record.revision


class Watch(Protocol):
    """Events of one bucket in order, without gap or duplicate. Ends with Lagging when the reader is too slow."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def __anext__(self) -> Event: ...

    def take(self) -> list[Event]:
        """All events that are available now, without waiting (may be empty)."""
        ...

    async def ready(self) -> None:
        """Returns when there may be something to take, the watch is closed, or a listener returned False."""
        ...

    def listen(self, callback: Callable[[], bool]) -> None:
        """Calls back when events arrive while a reader waits; the callback should `take` them. The reader is woken only
        if it returns False, so a watcher costs a call per event instead of a task switch."""
        ...

    @property
    def closed(self) -> bool: ...

    @property
    def position(self) -> int:
        """All events of the bucket up to this revision have been delivered (for bookmarks)."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    @property
    def revision(self) -> int:
        """The last assigned revision; the next write gets `revision + 1`, also inside a transaction."""
        ...

    @property
    def durable_revision(self) -> int: ...

    @property
    def settled_revision(self) -> int:
        """The last revision given to `settle`, in this or in an earlier process."""
        ...

    def get(self, bucket: str, name: str) -> StoredRecord | None: ...

    def get_all(self, bucket: str, names: Iterable[str]) -> Sequence[StoredRecord]:
        """The records with these names, in their order; names without a record are left out."""
        ...

    def scan(self, bucket: str, prefix: str = "", after: str = "", limit: int = 0) -> Sequence[StoredRecord]:
        """Records whose name starts with `prefix` and sorts after `after`, in byte order of the name."""
        ...

    def count(self, bucket: str, prefix: str = "", after: str = "") -> int:
        """How many records `scan` would return, in time independent of their number."""
        ...

    def measure(self, namespace: str) -> int:
        """Bytes of all values whose name begins with `namespace/`, in all buckets. Maintained on every write from the
        first call on; a store that is never asked pays nothing."""
        ...

    def buckets(self) -> Sequence[str]: ...

    def put(
        self, bucket: str, name: str, value: bytes, *, expect: int | Absent | None = None, memo: object = None
    ) -> StoredRecord:
        """Writes at `revision + 1`. The caller has already put that revision into the value if needed.

        The memo is set before anybody sees the record.
        """
        ...

    def delete(
        self, bucket: str, name: str, value: bytes, *, expect: int | None = None, memo: object = None
    ) -> StoredRecord:
        """Removes the key; `value` is the final state that watchers receive. Raises Mismatch if the key is missing."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside become visible, durable and watchable together, or, on an exception, not at all.

        Synchronous: must not contain an await. Reads inside see the writes made so far. Nested transactions join the
        outer one.
        """
        ...

    async def durable(self, revision: int) -> None:
        """Returns once everything up to `revision` is on disk."""
        ...

    async def catch_up(self) -> None:
        """Returns once nearly everything is on disk. Background work calls this before it writes."""
        ...

    def watch(self, bucket: str, after: int, *, durable: bool = True) -> Watch:
        """Events of the bucket with a revision above `after`. Raises Compacted if the window does not reach back that
        far.

        durable=True (outside watchers): events are delivered after their commit. durable=False (controllers in this
        process): immediately after their transaction.
        """
        ...

    def subscribe(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Calls back synchronously with the events of each transaction, before anything else runs (indexes, garbage
        collection). Returns a function that ends the subscription."""
        ...

    async def settle(self, revision: int, at_rest: Sequence[tuple[StoredRecord, bytes]]) -> None:
        """Notes that everything that writes up to this revision gave cause to has been done, and packs records that
        will hardly be read again, each with a note (`StoredRecord.note`). Their values stay readable. Raises NoSpace if
        the disk is full; nothing has changed then."""
        ...

    def history(self, bucket: str) -> Iterator[Event]:
        """The replay window, oldest first (for tests and tools)."""
        ...
