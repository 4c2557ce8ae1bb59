"""A scripted server side of the Client protocol: what `list` and `watch` answer, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
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


def make_object(name: str, version: int, *, namespace: str = "a", owner: str = "", **labels: str) -> Object:
    meta: Object = {"name": name, "namespace": namespace, "resourceVersion": str(version), "uid": f"uid-{name}"}
    if labels:
        meta["labels"] = labels
    if owner:
        meta["ownerReferences"] = [{"uid": owner, "controller": True, "kind": "Job", "name": "j"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


class ScriptedWatch:
    """Plays its events, then raises `error` or ends, after some seconds; waits for ever when `hang`."""

    def __init__(
        self, events: Sequence[WatchEvent], error: Exception | None = None, *, hang: bool = False, seconds: float = 0.0
    ) -> None:
        self._events = list(events)
        self._error = error
        self._hang = hang
        self._seconds = seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        await asyncio.sleep(0)
        if self._events:
            return self._events.pop(0)
        if self._error is not None:
            raise self._error
        if self._hang:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self._seconds)
        raise StopAsyncIteration


class FakeClient:
    """Implements the Client protocol as far as the cache and the recorder use it; the rest refuses."""

    def __init__(self) -> None:
        self.lists: list[ObjectList | Exception] = []
        self.watches: list[ScriptedWatch] = []
        self.list_calls: list[ListOptions] = []
        self.watch_calls: list[WatchOptions] = []
        self.stored: dict[tuple[str, str], Object] = {}
        self.create_calls = 0
        self.create_error: Exception | None = None
        self.created: list[Object] = []

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008
        self.list_calls.append(options)
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = WatchOptions()) -> ScriptedWatch:  # noqa: B008
        self.watch_calls.append(options)
        return self.watches.pop(0) if self.watches else ScriptedWatch([], hang=True)

    async def create(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
        options: WriteOptions = WriteOptions(),  # noqa: B008
    ) -> Object:
        self.create_calls += 1
        if self.create_error is not None:
            raise self.create_error
        key = (namespace, obj["metadata"]["name"])
        if key in self.stored:
            raise status.already_exists(gvr, key[1])
        self.stored[key] = dict(obj)
        self.created.append(obj)
        return obj

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        if (namespace, name) not in self.stored:
            raise status.not_found(gvr, name)
        return self.stored[namespace, name]

    async def patch(
        self,
        gvr: GVR,
        name: str,
        patch_type: PatchType,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions = WriteOptions(),  # noqa: B008
    ) -> Object:
        self.stored[namespace, name].update(patch)
        return self.stored[namespace, name]

    async def update(
        self, gvr: GVR, obj: Object, namespace: str = "", *, subresource: str = "",
        options: WriteOptions = WriteOptions(),  # noqa: B008
    ) -> Object:  # fmt: skip
        raise NotImplementedError

    async def delete(
        self, gvr: GVR, name: str, namespace: str = "", options: DeleteOptions = DeleteOptions()  # noqa: B008
    ) -> Object:  # fmt: skip
        raise NotImplementedError

    async def delete_collection(
        self, gvr: GVR, namespace: str = "", list_options: ListOptions = ListOptions(),  # noqa: B008
        options: DeleteOptions = DeleteOptions(),  # noqa: B008
    ) -> Sequence[Object]:  # fmt: skip
        raise NotImplementedError

    def logs(self, name: str, namespace: str, options: LogOptions = LogOptions()) -> AsyncIterator[bytes]:  # noqa: B008
        raise NotImplementedError

    async def durable(self, revision: int) -> None:
        pass

    def as_user(self, identity: ActingIdentity) -> FakeClient:
        return self

    async def close(self) -> None:
        pass
