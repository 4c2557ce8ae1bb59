"""The in-process client: implements the Client protocol on the registry, without HTTP but with admission.

Writes are visible immediately and durable later: await `durable` before a result leaves the process. Callers receive
their own copies. `LocalClient` itself acts as the owner, who may do everything; `as_user` acts as another user and
checks permissions first.

`apply_atomically` performs the writes of a reconciler in one transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.tables import build_partial
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError, from_object
from trainmaster.apiserver import stored
from trainmaster.apiserver.contract import Call, Frame, Frames
from trainmaster.apiserver.parsed import ParsedObjects
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.contract import (
    ActingIdentity,
    DeleteOptions,
    ListOptions,
    LogOptions,
    ObjectList,
    PatchType,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)
from trainmaster.client.writes import Applied, Create, Delete, Patch, Write, WriteRefusal

SYSTEM = ActingIdentity("system:trainmaster", groups=("system:masters", "system:authenticated"))
_AGENT = "trainmaster"
T = TypeVar("T")

LogSource = Callable[[str, str, LogOptions], AsyncIterator[bytes]]
"""(Pod name, namespace, options) -> the log of the Pod on the node."""


class LocalAuthorizer(Protocol):
    """The authorizer of `as_user`; `auth.contract.Authorizer` implements it."""

    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool: ...


class LocalClient:
    def __init__(
        self,
        registry: ObjectRegistry,
        *,
        identity: ActingIdentity = SYSTEM,
        user_agent: str = _AGENT,
        authorizer: LocalAuthorizer | None = None,
        log_source: LogSource | None = None,
        checked: bool = False,
    ) -> None:
        self._registry = registry
        self._identity = identity
        self._user_agent = user_agent
        self._authorizer = authorizer
        self._log_source = log_source
        self._checked = checked
        self.warnings: deque[str] = deque(maxlen=100)
        """The last API warnings, newest last; the code that shows them clears this."""

    def as_user(self, identity: ActingIdentity) -> LocalClient:
        return LocalClient(
            self._registry,
            identity=identity,
            user_agent=self._user_agent,
            authorizer=self._authorizer,
            log_source=self._log_source,
            checked=True,
        )

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        kind = self._admit("get", gvr, namespace, name, subresource)
        return stored.parse(self._registry.get(kind, namespace, name, subresource=subresource).value)

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions | None = None) -> ObjectList:
        kind = self._admit("list", gvr, namespace)
        page = await self._registry.list(kind, namespace, options or ListOptions())
        items = [stored.parse(value) for value in page.values]
        if options is not None and options.metadata_only:
            items = [build_partial(item) for item in items]
        return ObjectList(items, str(page.revision), page.continue_token, page.remaining)

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions | None = None) -> LocalWatch:
        kind = self._admit("watch", gvr, namespace)
        asked = options or WatchOptions()
        shared = self._registry.state.parsed if asked.read_only else None
        frames = partial(self._registry.watch, kind, namespace, asked, durable=False)
        return LocalWatch(frames, shared, metadata_only=asked.metadata_only)

    async def create(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
        options: WriteOptions | None = None,
    ) -> Object:
        kind = self._admit("create", gvr, namespace, name, subresource)
        call = self._call()
        written = self._registry.create(
            call, kind, namespace, _copy(obj), options or WriteOptions(), name=name, subresource=subresource
        )
        return self._answer(call, written.value)

    async def update(
        self, gvr: GVR, obj: Object, namespace: str = "", *, subresource: str = "", options: WriteOptions | None = None
    ) -> Object:
        name = read_text(obj, "metadata", "name")
        kind = self._admit("update", gvr, namespace, name, subresource)
        call = self._call()
        written = self._registry.update(
            call, kind, namespace, name, _copy(obj), options or WriteOptions(), subresource=subresource
        )
        return self._answer(call, written.value)

    async def patch(
        self,
        gvr: GVR,
        name: str,
        patch_type: PatchType,
        patch: object,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Object:
        kind = self._admit("patch", gvr, namespace, name, subresource)
        call, options = self._call(), options or WriteOptions()
        written = self._registry.patch(
            call, kind, namespace, name, patch_type, _copy(patch), options, subresource=subresource
        )
        if options.read_only:
            record = self._registry.state.find(kind, namespace, name)
            if record is not None and record.value is written.value:
                self.warnings.extend(call.warnings)
                return self._registry.state.parsed.get(record)
        return self._answer(call, written.value)

    async def delete(self, gvr: GVR, name: str, namespace: str = "", options: DeleteOptions | None = None) -> Object:
        kind = self._admit("delete", gvr, namespace, name)
        call = self._call()
        deleted = self._registry.delete(call, kind, namespace, name, options or DeleteOptions())
        return self._answer(call, deleted.value)

    async def delete_collection(
        self,
        gvr: GVR,
        namespace: str = "",
        list_options: ListOptions | None = None,
        options: DeleteOptions | None = None,
    ) -> Sequence[Object]:
        kind = self._admit("deletecollection", gvr, namespace)
        page = await self._registry.delete_collection(
            self._call(), kind, namespace, list_options or ListOptions(), options or DeleteOptions()
        )
        return [stored.parse(value) for value in page.values]

    def logs(self, name: str, namespace: str, options: LogOptions | None = None) -> AsyncIterator[bytes]:
        self._admit("get", PODS, namespace, name, "log")
        if self._log_source is None:
            raise status.unavailable("no node serves logs")
        return self._log_source(name, namespace, options or LogOptions())

    async def durable(self, revision: int) -> None:
        await self._registry.store.durable(revision)

    async def catch_up(self) -> None:
        await self._registry.store.catch_up()

    async def close(self) -> None:
        """Nothing to close."""

    def apply_atomically(self, writes: Sequence[Write], *, field_manager: str) -> Applied:
        """Performs all writes in one transaction, or none if one is refused. Not recorded in managedFields."""
        store = self._registry.store
        call = Call(self._identity, self._user_agent, is_own=True)
        options = WriteOptions(field_manager=field_manager, field_validation="Ignore")
        write: Write | None = None
        try:
            with store.transaction():
                for write in writes:
                    self._carry_out(call, write, options)
        except StatusError as error:
            assert write is not None
            return Applied(WriteRefusal(write, error), 0)
        return Applied(None, store.revision if writes else 0)

    def _carry_out(self, call: Call, write: Write, options: WriteOptions) -> None:
        match write:
            case Create(gvr, obj, proven):
                namespace = obj["metadata"].get("namespace", "")
                kind = self._admit("create", gvr, namespace, obj["metadata"].get("name", ""))
                if proven:
                    self._registry.create_proven(call, kind, namespace, _detach(obj), options)
                else:
                    self._registry.create(call, kind, namespace, _copy(obj), options)
            case Patch(gvr, namespace, name, patch, subresource):
                kind = self._admit("patch", gvr, namespace, name, subresource)
                self._registry.patch(
                    call, kind, namespace, name, PatchType.MERGE, patch, options, subresource=subresource
                )
            case Delete(gvr, namespace, name, uid, resource_version, propagation):
                kind = self._admit("delete", gvr, namespace, name)
                asked = DeleteOptions(propagation, uid=uid, resource_version=resource_version)
                self._registry.delete(call, kind, namespace, name, asked)

    def _call(self) -> Call:
        return Call(self._identity, self._user_agent)

    def _answer(self, call: Call, value: bytes) -> Object:
        self.warnings.extend(call.warnings)
        return stored.parse(value)

    def _admit(self, verb: str, gvr: GVR, namespace: str, name: str = "", subresource: str = "") -> Kind:
        """The kind, if it is served and the user is allowed to perform the verb."""
        kind = self._registry.catalogue.find(gvr)
        if kind is None:
            raise status.unknown_path()
        if verb not in kind.verbs and (self._checked if kind.read_only else not subresource):
            raise status.method_not_allowed(kind.read_only)
        if self._checked:
            self._authorize(verb, gvr, namespace, name, subresource)
        return kind

    def _authorize(self, verb: str, gvr: GVR, namespace: str, name: str, subresource: str) -> None:
        resource = f"{gvr.plural}/{subresource}" if subresource else gvr.plural
        user = self._identity.user
        if self._authorizer is not None and self._authorizer.allows(
            self._identity, verb, gvr.group, resource, namespace, name
        ):
            return
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        raise status.forbidden(
            gvr,
            name,
            f'User "{user}" cannot {verb} resource "{resource}" in API group "{gvr.group}" {where}',
        )


def _copy(obj: T) -> T:
    """A deep copy, because the registry takes ownership of objects."""
    copied: T = orjson.loads(orjson.dumps(obj))
    return copied


def _detach(obj: Object) -> Object:
    """A copy with metadata of its own, which the registry completes. A caller may write the object again."""
    return {**obj, "metadata": {**obj["metadata"]}}


class LocalWatch:
    """See `client.contract.WatchStream`. Opened on entering, so that errors are raised there, as over HTTP."""

    def __init__(
        self,
        open_frames: Callable[[], Frames],
        shared: ParsedObjects | None = None,
        *,
        metadata_only: bool = False,
    ) -> None:
        """`shared`: the source of shared read-only objects."""
        self._open = open_frames
        self._shared = shared
        self._metadata_only = metadata_only
        self._frames: Frames | None = None
        self._ready: list[Frame] = []

    async def __aenter__(self) -> Self:
        self._frames = self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._frames is not None:
            self._frames.close()

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        assert self._frames is not None, "enter the watch first"
        if not self._ready:
            self._ready = list(await anext(self._frames))
            self._ready.reverse()
        frame = self._ready.pop()
        if self._shared is not None and frame.record is not None:
            obj = self._shared.get(frame.record)
        else:
            obj = stored.parse(frame.value)
        if frame.type == "ERROR":
            raise from_object(obj)
        return WatchEvent(frame.type, build_partial(obj) if self._metadata_only else obj)
