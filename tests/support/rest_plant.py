"""The REST API in this process with controllers and a scripted node behind it, in virtual time: jobs run and print.

async with running_rest_plant(tmp_path) as plant:
    ann = await plant.rest.add_tenant("ann")
    ...
    plant.papers.print("ann-mnist-node-0-0-abcde", "loss 0.3")
    async with plant.listen("/api/v1/jobs/ann-mnist/logs/stream", token=ann) as stream:
        event = await stream.next()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from tests.flow.plant import CONTROLLERS, NODE, ScriptedNode
from tests.support.rest import RestApi, running_rest
from trainmaster.api.labels import COMPLETION_INDEX, JOBSET_NAME
from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES, PODS
from trainmaster.apiserver.local_view import LocalView
from trainmaster.app.settings import Settings
from trainmaster.client.contract import ListOptions, LogOptions
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.feed import WatchFeed
from trainmaster.engine.manager import Manager
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.rest.services.streams import Streams


class PodOutput:
    """What Pods have printed; read as a node's logs are."""

    def __init__(self) -> None:
        self.lines: dict[str, list[tuple[str, str]]] = {}
        self.ended: set[str] = set()
        self.readers = 0
        self._count = 0
        self._news = asyncio.Event()

    def print(self, pod: str, *texts: str) -> None:
        for text in texts:
            self._count += 1
            self.lines.setdefault(pod, []).append((f"2026-01-01T00:00:00.{self._count:09d}Z", text))
        self._tell()

    def end(self, pod: str) -> None:
        self.ended.add(pod)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def read(self, name: str, namespace: str, options: LogOptions) -> AsyncIterator[bytes]:
        at = 0
        self.readers += 1
        try:
            while True:
                lines, news = self.lines.get(name, []), self._news
                for time, text in lines[at:]:
                    if time >= options.since_time:
                        yield f"{time} {text}\n".encode()
                at = len(lines)
                if not options.follow or name in self.ended:
                    return
                await news.wait()
        finally:
            self.readers -= 1


@dataclass(frozen=True)
class Event:
    kind: str
    data: Any
    id: str


@dataclass
class Listener:
    """One client of a stream."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    last_id: str = ""
    blocked: bool = False
    """A slow client: reads nothing from the server."""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        async with self._news:
            await self._news.wait_for(lambda: not self.blocked)
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                self.body += message.get("body", b"")
                self.ended = not message.get("more_body")
            self._news.notify_all()

    async def unblock(self) -> None:
        async with self._news:
            self.blocked = False
            self._news.notify_all()

    async def started(self) -> int:
        async with self._news:
            await self._news.wait_for(lambda: self.status)
        return self.status

    async def next(self) -> Event | None:
        """The next event; None at the end. Comments are passed over."""
        while True:
            async with self._news:
                await self._news.wait_for(lambda: b"\n\n" in self.body or self.ended)
            if b"\n\n" not in self.body:
                return None
            raw, _, self.body = self.body.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in raw.decode().split("\n") if not line.startswith(":"))
            if "data" not in fields:
                continue
            self.last_id = fields.get("id", self.last_id)
            return Event(fields.get("event", "message"), orjson.loads(fields["data"]), self.last_id)

    async def take_lines(self, count: int) -> list[str]:
        """Texts of log lines until there are so many; fewer when the stream ends."""
        found: list[str] = []
        while len(found) < count:
            event = await self.next()
            if event is None:
                break
            if event.kind == "log":
                found += [line["text"] for line in event.data["lines"]]
        return found


@dataclass
class RestPlant:
    rest: RestApi
    papers: PodOutput
    node: ScriptedNode

    @property
    def streams(self) -> Streams:
        return self.rest.backend.streams

    async def call(self, method: str, url: str, token: str | None, body: Any = None, **more: Any) -> Any:
        return await self.rest.call(method, url, token=token, body=body, **more)

    async def find_pods(self, namespace: str, job: str, count: int = 0) -> list[str]:
        """Names of the job's Pods by worker, once there are so many."""
        options = ListOptions(label_selector=f"{JOBSET_NAME}={job}")
        while True:
            pods: Sequence[Object] = (await self.rest.client.list(PODS, namespace, options)).items
            live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and pod.get("status")]
            running = [pod for pod in live if pod["status"].get("phase") != "Pending"]
            if len(running) >= count:
                ordered = sorted(running, key=lambda pod: int(pod["metadata"]["labels"][COMPLETION_INDEX]))
                return [pod["metadata"]["name"] for pod in ordered]
            await self.rest.clock.sleep(0.1)

    @asynccontextmanager
    async def listen(
        self,
        url: str,
        *,
        token: str | None,
        last_id: str = "",
        blocked: bool = False,
        headers: Sequence[tuple[str, str]] = (),
        scheme: str = "https",
    ) -> AsyncIterator[Listener]:
        """Opens a stream; leaving the block disconnects the client."""
        listener, gone = Listener(blocked=blocked), asyncio.Event()
        sent = [(key.encode(), value.encode()) for key, value in headers]
        if token is not None:
            sent.append((b"authorization", f"Bearer {token}".encode()))
        if last_id:
            sent.append((b"last-event-id", last_id.encode()))
        parts = urlsplit(url)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": scheme,
            "path": parts.path,
            "raw_path": quote(parts.path).encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": sent,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async with Scope("listener") as tasks:
            task = tasks.spawn(self.rest.app(scope, receive, listener.send), name="listener.app")
            yield listener
            gone.set()
            await task


@asynccontextmanager
async def running_rest_plant(
    folder: Path, node: ScriptedNode | None = None, settings: Settings | None = None, clock: Clock | None = None
) -> AsyncIterator[RestPlant]:
    node, papers = node or ScriptedNode(script=lambda pod, run: -1), PodOutput()
    async with running_rest(folder, settings, logs=papers.read, clock=clock) as rest:
        client, clock = rest.client, rest.clock
        await client.create(NODES, NODE)
        manager = Manager(
            CONTROLLERS,
            view=LocalView(rest.api.registry),
            feed=WatchFeed(client, clock),
            apply=apply_in_one(client),
            recorder=EventRecorder(client, clock),
            clock=clock,
            effects=None,
        )
        async with Scope("plant") as scope, manager.running():
            scope.spawn_forever(node.run(client, clock), name="plant.node")
            yield RestPlant(rest, papers, node)
