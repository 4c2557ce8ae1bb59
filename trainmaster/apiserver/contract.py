"""What the HTTP layer asks of the registry. `registry.Registry` implements it; `local.LocalClient` and `http` use it.

Everything but `list` is synchronous: the state is in memory and one call is one transaction. Values are JSON bytes as
stored, so that a read is answered without parsing. Nothing here waits for the disk: whoever lets an answer out of the
process first awaits `store.durable(revision)` with the revision of the answer.

Refusals are `api.status.StatusError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.client.contract import (
    ActingIdentity,
    DeleteOptions,
    ListOptions,
    PatchType,
    WatchOptions,
    WriteOptions,
)
from trainmaster.store.contract import StoredRecord


@dataclass(slots=True)
class Call:
    """Who calls, and what the call leaves behind for the response."""

    identity: ActingIdentity
    user_agent: str = ""
    """The part before "/" is the field manager when none is named."""
    warnings: list[str] = field(default_factory=list)
    """Texts for `Warning: 299` headers, filled by the registry."""
    duplicates: Sequence[str] = ()
    """Paths of fields that stood more than once in the request's body."""
    track_fields: bool = True
    """Whether the write is recorded in managedFields; our own controllers' writes are not."""


class Written(NamedTuple):
    value: bytes
    """The stored object (or, for a dry run, what would be stored)."""
    revision: int
    """Await durability of this one; 0 when nothing was written."""
    created: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    value: bytes
    """The Status when `gone`, else the object with its deletionTimestamp."""
    revision: int
    gone: bool


@dataclass(frozen=True, slots=True)
class ListPage:
    values: Sequence[bytes]
    revision: int
    """metadata.resourceVersion of the list: a watch from here misses nothing."""
    continue_token: str = ""
    remaining: int | None = None


class Frame:
    """One watch event. `value` is the object's JSON; for BOOKMARK a minimal object; for ERROR a Status.

    Frames are shared: all watchers of a collection receive the same one, so that `line` is made once for all.
    """

    __slots__ = ("_line", "record", "revision", "type", "value")

    def __init__(self, type: str, value: bytes, revision: int, record: StoredRecord | None = None) -> None:
        self.type = type
        self.value = value
        self.revision = revision
        self.record = record
        """The one that holds the same object, if there is one."""
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The event as it goes over the wire, with its line end."""
        line = self._line
        if line is None:
            line = self._line = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.value)
        return line


class Outlet(Protocol):
    """Where frames of a watch go without a task switch."""

    def is_ready(self) -> bool:
        """False while the reader is behind; then the watch's own task takes over, and waits."""
        ...

    def deliver(self, frames: Sequence[Frame]) -> None: ...


class Frames(Protocol):
    """The events of one watch, in batches as they become ready. Batches are never empty, but for the time limit."""

    def __aiter__(self) -> AsyncIterator[Sequence[Frame]]: ...

    async def __anext__(self) -> Sequence[Frame]: ...

    def deliver_to(self, outlet: Outlet) -> None:
        """What comes while `__anext__` waits goes to the outlet instead, in order, as long as it is ready."""
        ...

    def close(self) -> None: ...


class Registry(Protocol):
    def get(self, kind: Kind, namespace: str, name: str) -> Written: ...

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListPage:
        """Long lists are worked through in slices, so that nobody else waits longer than a few milliseconds."""
        ...

    def watch(self, kind: Kind, namespace: str, options: WatchOptions, *, durable: bool = True) -> Frames:
        """Refuses at once (410, 400) what cannot be served. Events are delivered after their commit, or, with
        durable=False (for what stays inside the process), right after their transaction."""
        ...

    def create(
        self,
        call: Call,
        kind: Kind,
        namespace: str,
        obj: Object,
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
    ) -> Written: ...

    def update(
        self,
        call: Call,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Written: ...

    def patch(
        self,
        call: Call,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: PatchType,
        patch: object,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Written: ...

    def delete(self, call: Call, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> DeleteResult: ...

    async def delete_collection(
        self, call: Call, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListPage: ...
