"""The interface of the registry. `registry.ObjectRegistry` implements it; `local.LocalClient` and `http` use it.

Everything but `list` is synchronous: the state is in memory, and one call is one transaction. Values are JSON bytes as
stored, so that reads need no parsing. Nothing here waits for the disk: before a response leaves the process, the caller
has to await `store.durable(revision)` with the revision of the response.

Errors are `api.status.StatusError`.
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
    """The caller of a request, and data for the response."""

    identity: ActingIdentity
    user_agent: str = ""
    """The part before "/" is the default field manager."""
    warnings: list[str] = field(default_factory=list)
    """Texts for `Warning: 299` headers, filled by the registry."""
    duplicates: Sequence[str] = ()
    """Paths of duplicate fields in the request body."""
    is_own: bool = False
    """A write of our own controllers: not recorded in managedFields, and the status that they computed is valid."""


class Written(NamedTuple):
    value: bytes
    """The stored object; for a dry run, the object that would be stored."""
    revision: int
    """The revision to await durability of; 0 if nothing was written."""
    created: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    value: bytes
    """The Status if `gone`, else the object with its deletionTimestamp."""
    revision: int
    gone: bool


@dataclass(frozen=True, slots=True)
class ListPage:
    values: Sequence[bytes]
    revision: int
    """metadata.resourceVersion of the list: a watch that starts here misses no event."""
    continue_token: str = ""
    remaining: int | None = None


class Frame:
    """One watch event. `value` is the object's JSON; for BOOKMARK a minimal object; for ERROR a Status.

    All watchers of a collection share the same frame, so that `line` is encoded only once.
    """

    __slots__ = ("_line", "record", "revision", "type", "value")

    def __init__(self, type: str, value: bytes, revision: int, record: StoredRecord | None = None) -> None:
        self.type = type
        self.value = value
        self.revision = revision
        self.record = record
        """The record of the same object, if there is one."""
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The encoded event, including the newline."""
        line = self._line
        if line is None:
            line = self._line = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.value)
        return line


class Outlet(Protocol):
    """Receives the frames of a watch without a task switch."""

    def is_ready(self) -> bool:
        """False if the reader is behind; the watch's own task then takes over and waits."""
        ...

    def deliver(self, frames: Sequence[Frame]) -> None: ...


class Frames(Protocol):
    """The events of one watch, in batches. A batch is empty only at the time limit."""

    def __aiter__(self) -> AsyncIterator[Sequence[Frame]]: ...

    async def __anext__(self) -> Sequence[Frame]: ...

    def deliver_to(self, outlet: Outlet) -> None:
        """While `__anext__` waits, events go to the outlet instead, in order, as long as it is ready."""
        ...

    def close(self) -> None: ...


class Registry(Protocol):
    def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Written: ...

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListPage:
        """Long lists are processed in slices, so that other requests wait at most a few milliseconds."""
        ...

    def watch(self, kind: Kind, namespace: str, options: WatchOptions, *, durable: bool = True) -> Frames:
        """Raises immediately (410, 400) if the watch cannot be served. Events are delivered after their commit, or with
        durable=False (for use inside the process) right after their transaction."""
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
