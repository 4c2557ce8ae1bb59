"""What the HTTP client does when a server is busy, silent or gone: it waits, it gives up, it does not hammer."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import StatusError
from trainmaster.client.http import HttpClient, Unreachable
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.server_time import ServerClock
from trainmaster.client.transport import HttpAnswer, Transport, _Connection
from trainmaster.kit.ids import SeededIds
from trainmaster.testing.virtual import START, VirtualClock, run_virtual

pytestmark = pytest.mark.unit

OK = HttpAnswer(200, {"date": "Thu, 01 Jan 2026 01:00:00 GMT"}, b"{}")
_HOUR = 3600.0


def busy(after: str, status: int = 429) -> HttpAnswer:
    return HttpAnswer(status, {"retry-after": after}, b"{}")


class Server(Transport):
    """Gives the answers in turn, the last one for ever; None is silence."""

    def __init__(self, *answers: HttpAnswer | None) -> None:
        super().__init__("http://server")
        self.answers = list(answers)
        self.asked_at: list[float] = []

    async def _connect(self) -> _Connection:
        return cast(_Connection, Line(self))


class Line:
    reusable, lost, started = True, False, True

    def __init__(self, server: Server) -> None:
        self._server = server

    def send(self, payload: bytes, *, stream: bool) -> None:
        self._server.asked_at.append(round(asyncio.get_running_loop().time(), 3))

    async def read(self) -> HttpAnswer:
        answers = self._server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            await asyncio.get_running_loop().create_future()
        assert answer is not None
        return answer

    def close(self) -> None:
        return None


def ask(server: Server, *, ids: SeededIds | None = None, patience: float | None = None) -> StatusError | None:
    async def main() -> StatusError | None:
        client = HttpClient(
            ClusterConfig("http://server"), clock=VirtualClock(), transport=server, ids=ids, patience=patience
        )
        try:
            await client.get(CONFIG_MAPS, "a", "default")
        except StatusError as error:
            return error
        return None

    return run_virtual(main())


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_after_the_time_that_it_names(status: int) -> None:
    server = Server(busy("5", status), OK)
    assert ask(server) is None
    assert server.asked_at == [0, 5]


def test_a_server_that_stays_busy_is_asked_less_and_less_often_and_then_given_up() -> None:
    server = Server(busy("1"))
    error = ask(server)
    assert error is not None and error.code == 429
    pauses = [round(after - before, 3) for before, after in zip(server.asked_at, server.asked_at[1:], strict=False)]
    assert len(pauses) == 10 and pauses == sorted(pauses)
    assert pauses[0] == 1 and pauses[-1] == 10


def test_a_server_that_allows_a_retry_at_once_is_not_hammered() -> None:
    server = Server(busy("0"))
    assert ask(server) is not None
    assert len(server.asked_at) == 11 and server.asked_at[-1] > 30


def test_callers_who_were_refused_together_come_again_at_different_times() -> None:
    found = []
    for seed in range(20):
        server = Server(busy("5"), OK)
        assert ask(server, ids=SeededIds(seed)) is None
        found.append(server.asked_at[1])
    assert len(set(found)) == 20 and all(5 <= moment <= 6 for moment in found)


@pytest.mark.parametrize("after", ["", "-1", "soon", "²", "Wed, 18 Nov 2026 22:40:00 GMT"])
def test_without_a_number_of_seconds_the_caller_decides(after: str) -> None:
    server = Server(busy(after))
    error = ask(server)
    assert error is not None and error.code == 429
    assert len(server.asked_at) == 1


def test_other_errors_are_left_to_the_caller() -> None:
    for status in (409, 500, 504):
        server = Server(busy("1", status))
        error = ask(server)
        assert error is not None and error.code == status and len(server.asked_at) == 1


def test_a_request_without_an_answer_is_given_up_by_a_client_with_limited_patience() -> None:
    error = ask(Server(None), patience=75.0)
    assert isinstance(error, Unreachable) and error.sent
    assert error.message == "no answer from http://server within 75 s"


def test_the_time_of_the_server_is_taken_from_its_answers() -> None:
    async def main() -> float:
        clock = ServerClock(VirtualClock())
        client = HttpClient(ClusterConfig("http://server"), clock=clock, transport=Server(OK))
        await client.get(CONFIG_MAPS, "a", "default")
        return clock.unix()

    assert abs(run_virtual(main()) - (START.timestamp() + _HOUR)) <= 1


def test_the_kernel_notices_when_the_machine_of_a_server_dies() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        _Connection().connection_made(cast(asyncio.BaseTransport, FakeTransport(sock)))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * count == 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


class FakeTransport:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self._sock
