"""The Client protocol: Kubernetes API semantics, without anything specific to one server.

There are three interchangeable implementations: `apiserver.local` (in-process, on the store), `client.http` with our
own API server, and `client.http` with any Kubernetes API server. One contract suite (`tests/contract/client`) runs
against all of them.

Errors are `api.status.StatusError` and its subclasses. Objects are plain JSON mappings; the caller owns what it
receives, except from `View`s and caches, where objects are shared and read-only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from trainmaster.api.meta import GVR, Object


class PatchType(Enum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""
    """Strict, Warn or Ignore; "" is the server's default (Warn)."""
    force: bool = False
    """Server-side apply only: take over fields of other managers."""
    read_only: bool = False
    """The caller does not modify the answer to a patch. See `WatchOptions.read_only`."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    propagation: str = ""
    """Background, Foreground, Orphan; "" is the kind's default."""
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListOptions:
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    metadata_only: bool = False
    """Return PartialObjectMetadata of meta.k8s.io/v1: nothing but the metadata of each object."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    """"" and "0": start with the current state as ADDED events. Otherwise: changes after that revision."""
    resource_version_match: str = ""
    """NotOlderThan, only together with `send_initial_events`."""
    bookmarks: bool = False
    send_initial_events: bool | None = None
    """True: start with the current state, followed by a bookmark (needs `resource_version_match`)."""
    timeout_seconds: float | None = None
    read_only: bool = False
    """The caller does not modify the objects of events. In-process it then gets shared objects, which saves copying
    them; otherwise it makes no difference."""
    metadata_only: bool = False
    """As in `ListOptions`; also for bookmarks."""
    gather_seconds: float = 0.0
    """After an event, for how long the next ones may collect before they are read. Over HTTP, reading many at once
    costs less than one at a time. Of several events of one object that are read together only the last may be there."""
    without_spec: bool = False
    """The caller needs neither spec nor managedFields, so objects may lack them."""


@dataclass(slots=True)
class ObjectList:
    items: list[Object]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK. A watch that cannot continue raises StatusError (410: list again)."""
    object: Object


class WatchStream(Protocol):
    """Async context manager and iterator; leaving it ends the watch. Iteration ends at the watch's time limit."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __aiter__(self) -> AsyncIterator[WatchEvent]: ...

    async def __anext__(self) -> WatchEvent: ...


@dataclass(frozen=True, slots=True)
class ActingIdentity:
    """The user on whose behalf a request is made. `system:masters` in groups may do everything."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogOptions:
    container: str = ""
    follow: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str = ""
    """Stdout or Stderr; empty and All are both."""
    uid: str = ""
    """Only if the Pod has this uid, otherwise NotFound. Our own extension; Kubernetes ignores it."""


class Client(Protocol):
    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object: ...

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ...) -> ObjectList:
        """namespace "" lists all namespaces (or a cluster-scoped kind). Items have kind and apiVersion."""
        ...

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = ...) -> WatchStream: ...

    async def create(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
        options: WriteOptions = ...,
    ) -> Object: ...

    async def update(
        self, gvr: GVR, obj: Object, namespace: str = "", *, subresource: str = "", options: WriteOptions = ...
    ) -> Object: ...

    async def patch(
        self,
        gvr: GVR,
        name: str,
        patch_type: PatchType,
        patch: object,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions = ...,
    ) -> Object: ...

    async def delete(self, gvr: GVR, name: str, namespace: str = "", options: DeleteOptions = ...) -> Object:
        """The Status if the object is deleted, or the object with its deletionTimestamp if it is terminating."""
        ...

    async def delete_collection(
        self, gvr: GVR, namespace: str = "", list_options: ListOptions = ..., options: DeleteOptions = ...
    ) -> Sequence[Object]: ...

    def logs(self, name: str, namespace: str, options: LogOptions = ...) -> AsyncIterator[bytes]: ...

    async def durable(self, revision: int) -> None:
        """Returns once the write with that revision cannot be lost. Immediate over HTTP, where every answer is
        durable."""
        ...

    def as_user(self, identity: ActingIdentity) -> Client:
        """The same server, acting as somebody else (impersonation)."""
        ...

    async def close(self) -> None: ...
