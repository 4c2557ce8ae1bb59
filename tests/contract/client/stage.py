"""What one test of the Client contract gets: a client of some server, and a namespace of its own.

A server is a function that opens a client. Adding one is adding a line to `SERVERS`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.contract.client.objects import NAMESPACES, SERVICE_ACCOUNTS
from tests.kube.cluster import KubeCluster
from trainmaster.api.status import NotFound
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.endpoints import Endpoints
from trainmaster.apiserver.http.handlers import Handlers
from trainmaster.apiserver.http.server import ApiServer
from trainmaster.client.contract import ActingIdentity, Client
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.metrics import Metrics
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

T = TypeVar("T")

_PATIENCE_SECONDS = 30
_POLL_SECONDS = 0.05


class WarningClient(Client, Protocol):
    """A client that keeps the last API warnings it saw."""

    warnings: deque[str]


@dataclass(slots=True)
class Stage:
    server: str
    client: WarningClient
    namespace: str

    async def eventually(self, question: Callable[[], Awaitable[T]]) -> T:
        """Asks until the answer is true; for what a server does in the background."""
        end = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while True:
            answer = await question()
            if answer or asyncio.get_running_loop().time() > end:
                assert answer, f"still {answer!r} after {_PATIENCE_SECONDS} s"
                return answer
            await asyncio.sleep(_POLL_SECONDS)


@dataclass(slots=True)
class Place:
    """What servers may need from the test run."""

    directory: Path
    kube: Callable[[], KubeCluster]


@asynccontextmanager
async def _memory(place: Place) -> AsyncIterator[WarningClient]:
    async with running_cluster() as cluster:
        yield cluster.client


@asynccontextmanager
async def _sqlite(place: Place) -> AsyncIterator[WarningClient]:
    async with running_cluster(directory=place.directory) as cluster:
        yield cluster.client


class _Everybody:
    """Lets every caller in as the administrator: who may do what is tested elsewhere."""

    def identify(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> ActingIdentity:
        return ActingIdentity("suite", groups=("system:masters", "system:authenticated"))

    def review(self, token: str, audiences: tuple[str, ...]) -> None:
        return None

    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        return True

    def allows_path(self, identity: ActingIdentity, verb: str, path: str) -> bool:
        return True


@asynccontextmanager
async def _http(place: Place) -> AsyncIterator[WarningClient]:
    clock = SystemClock()
    async with running_cluster(directory=place.directory, clock=clock) as cluster:
        everybody = _Everybody()
        kinds = cluster.registry.catalogue
        access = Access(everybody, everybody)
        handlers = Handlers(cluster.registry, kinds, access, Endpoints(kinds, Metrics()), clock=clock)
        async with ApiServer(handlers, cluster.store, clock=clock, ids=cluster.ids) as server:
            client = HttpClient(ClusterConfig(server.url), user_agent="suite/1")
            try:
                yield client
            finally:
                await client.close()


@asynccontextmanager
async def _kube(place: Place) -> AsyncIterator[WarningClient]:
    kube = place.kube()
    client = HttpClient(ClusterConfig(kube.server, token=kube.token, ca_pem=kube.ca.read_text()), user_agent="suite/1")
    try:
        yield client
    finally:
        await client.close()


Opener = Callable[[Place], AbstractAsyncContextManager[WarningClient]]
SERVERS: dict[str, Opener] = {"memory": _memory, "sqlite": _sqlite, "http": _http, "kube": _kube}
VIRTUAL = ("memory", "sqlite")


def play(server: str, place: Place, test: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Runs one test against one server, in virtual time where there are no sockets."""

    async def whole() -> None:
        async with SERVERS[server](place) as client:
            await test(Stage(server, client, await _make_namespace(client)))

    if server in VIRTUAL:
        run_virtual(whole())
    else:
        asyncio.run(whole())


async def _make_namespace(client: WarningClient) -> str:
    """It ends with its server. A cluster that deletes one lists every kind in it, which costs more than a test."""
    name = f"suite-{SystemIds().suffix(8)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def is_furnished() -> bool:
        try:
            await client.get(SERVICE_ACCOUNTS, "default", name)
        except NotFound:
            return False
        return True

    await Stage("", client, name).eventually(is_furnished)
    return name
