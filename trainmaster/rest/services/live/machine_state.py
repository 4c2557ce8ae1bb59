"""The nodes and the queue, computed again and again while somebody looks at them: at most once a second, and so seldom
that it takes little of the server's time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import orjson

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Caller
from trainmaster.rest.contract import ReadNodes, ReadQueue
from trainmaster.rest.services.live.items import LiveItem
from trainmaster.rest.services.live.job_source import check_trouble, hash_state
from trainmaster.rest.services.live.sources import Source, Sources, build_share_key

_PAUSE_SECONDS = 1.0
_PAUSE_FACTOR = 20.0
"""How many times longer than the computation the pause is."""


class MachineState(Source):
    def __init__(self, caller: Caller, clock: Clock, nodes: ReadNodes, queue: ReadQueue, namespace: str) -> None:
        super().__init__()
        self._caller = caller
        self._clock = clock
        self._nodes = nodes
        self._queue = queue
        self._namespace = namespace
        self.state: tuple[str, bytes] = ("", b"")
        """Its hash, and what it is."""

    async def run(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self._look()
            except (StatusError, OSError) as error:
                check_trouble(error)
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(_PAUSE_SECONDS, spent * _PAUSE_FACTOR))

    async def _look(self) -> None:
        nodes, queue = await asyncio.gather(self._read_nodes(), self._queue(self._caller.client, self._namespace))
        await self._caller.settle()
        data = orjson.dumps({"nodes": nodes, "queue": queue})
        digest = hash_state(data)
        if digest != self.state[0]:
            self.state = digest, data
            self.changes.notify()

    async def _read_nodes(self) -> list[Object] | None:
        """None if the caller may not see them."""
        try:
            return await self._nodes(self._caller.client)
        except StatusError as error:
            if error.code == 403:
                return None
            raise


async def follow_machine(
    sources: Sources, caller: Caller, clock: Clock, readers: tuple[ReadNodes, ReadQueue], namespace: str, known: str
) -> AsyncGenerator[LiveItem, None]:
    """For ever. `known`: the hash of what the client has."""
    key = build_share_key(caller), namespace
    async with sources.using(MachineState, key, lambda: MachineState(caller, clock, *readers, namespace)) as source:
        while True:
            news = source.changes.next
            digest, data = source.state
            if digest and digest != known:
                known = digest
                yield LiveItem("machine", data, digest)
            source.check()
            await news.wait()
