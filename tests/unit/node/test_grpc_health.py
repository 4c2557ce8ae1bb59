"""The gRPC health question, byte by byte, against a server that is a few frames on a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainmaster.node.grpc_health import SERVING, ask

pytestmark = pytest.mark.unit


class Sink:
    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        return


def frame(kind: int, flags: int, payload: bytes = b"", stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def exchange(*frames: bytes, service: str = "") -> tuple[str, bytes]:
    async def main() -> tuple[str, bytes]:
        reader, sink = asyncio.StreamReader(), Sink()
        reader.feed_data(b"".join(frames))
        reader.feed_eof()
        stand_in: Any = sink
        return await ask(reader, stand_in, service), sink.sent

    return asyncio.run(main())


SETTINGS = frame(4, 0, stream=0)
HEADERS = frame(1, 4, b"\x88")


def answer(message: bytes) -> bytes:
    return frame(0, 0, b"\x00" + len(message).to_bytes(4, "big") + message)


def test_serving_is_heard_and_settings_and_pings_are_acknowledged() -> None:
    status, sent = exchange(SETTINGS, frame(6, 0, b"12345678", stream=0), HEADERS, answer(b"\x08\x01"))
    assert status == SERVING
    assert sent.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert frame(4, 1, stream=0) in sent and frame(6, 1, b"12345678", stream=0) in sent


def test_the_service_is_named_in_the_question() -> None:
    _, sent = exchange(SETTINGS, HEADERS, answer(b"\x08\x01"), service="db")
    assert b"\x00\x00\x00\x00\x04\x0a\x02db" in sent


@pytest.mark.parametrize(("message", "want"), [(b"\x08\x02", "NOT_SERVING"), (b"", "UNKNOWN")])
def test_other_states_have_their_names(message: bytes, want: str) -> None:
    assert exchange(SETTINGS, HEADERS, answer(message))[0] == want


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param((SETTINGS, frame(1, 5, b"\x88")), id="trailers only: an error"),
        pytest.param((SETTINGS, frame(3, 0, b"\x00\x00\x00\x08")), id="reset"),
        pytest.param((b"HTTP/1.1 400 Bad Request\r\n\r\n",), id="another protocol"),
    ],
)
def test_what_is_no_answer_is_an_error(frames: tuple[bytes, ...]) -> None:
    with pytest.raises((ValueError, EOFError)):
        exchange(*frames)
