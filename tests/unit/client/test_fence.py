"""A client that may not write any more sends nothing, however long a write has waited before; one with a pace waits."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ActingIdentity
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.transport import HttpAnswer, Transport, _Connection
from trainmaster.kit.pace import Pace
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit


class Line:
    """A connection that answers everything, and the n-th request with 503."""

    reusable, lost, started = True, False, True

    def __init__(self, sent: list[str], busy: int) -> None:
        self._sent = sent
        self._busy = busy

    def send(self, payload: bytes, *, stream: bool) -> None:
        self._sent.append(payload.split(b" ", 1)[0].decode())

    async def read(self) -> HttpAnswer:
        if len(self._sent) == self._busy:
            return HttpAnswer(503, {"retry-after": "5"}, b"{}")
        return HttpAnswer(200, {}, b"{}")

    def close(self) -> None:
        return None


class Server(Transport):
    """Lets nobody connect until `open` is set."""

    def __init__(self, busy: int = 0) -> None:
        super().__init__("http://server")
        self.sent: list[str] = []
        self.open = asyncio.Event()
        self._busy = busy

    async def _connect(self) -> _Connection:
        await self.open.wait()
        return cast(_Connection, Line(self.sent, self._busy))


class Fence:
    is_down = True

    def check(self) -> None:
        if not self.is_down:
            raise StatusError(503, "ServiceUnavailable", "too late")


def make_client(server: Server, fence: Fence) -> HttpClient:
    config = ClusterConfig("http://server")
    return HttpClient(config, clock=VirtualClock(), transport=server).fenced(fence.check)


def test_a_write_that_waits_for_a_connection_is_not_sent_once_it_is_too_late() -> None:
    async def main() -> None:
        server, fence = Server(), Fence()
        client = make_client(server, fence)
        write = asyncio.ensure_future(client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default"))
        await settle()
        fence.is_down = False
        server.open.set()
        with pytest.raises(StatusError, match="too late"):
            await write
        assert server.sent == []
        await client.get(CONFIG_MAPS, "a", "default")
        assert server.sent == ["GET"], "reading changes nothing"
        fence.is_down = True
        await client.delete(CONFIG_MAPS, "a", "default")
        assert server.sent == ["GET", "DELETE"]

    run_virtual(main())


def test_a_write_that_is_to_be_repeated_later_is_not_repeated_once_it_is_too_late() -> None:
    async def main() -> None:
        server, fence = Server(busy=1), Fence()
        server.open.set()
        client = make_client(server, fence)
        write = asyncio.ensure_future(client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default"))
        await settle()
        assert server.sent == ["POST"]
        fence.is_down = False
        with pytest.raises(StatusError, match="too late"):
            await write
        assert server.sent == ["POST"]

    run_virtual(main())


def test_requests_of_a_paced_client_wait_for_their_turn_and_those_of_others_do_not() -> None:
    async def main() -> None:
        server, clock = Server(), VirtualClock()
        server.open.set()
        client = HttpClient(ClusterConfig("http://server"), clock=clock, transport=server)
        paced = client.paced(Pace(clock, per_second=1.0, burst=1)).as_user(ActingIdentity("somebody"))
        for number in range(3):
            await paced.get(CONFIG_MAPS, "a", "default")
            assert clock.monotonic() == number
        await client.get(CONFIG_MAPS, "a", "default")
        assert clock.monotonic() == 2

    run_virtual(main())
