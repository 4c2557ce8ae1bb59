"""WebSocket framing: whatever way the bytes are cut, and whatever a hostile peer sends."""

from __future__ import annotations

import random

import pytest

from trainmaster.apiserver.http.streams.websocket import (
    Close,
    FrameReader,
    Piece,
    WebSocketPing,
    build_accept,
    build_close,
    build_head,
    build_message,
    is_valid_key,
    unmask,
)
from trainmaster.edge.connection import FramingError

pytestmark = pytest.mark.unit

MASK = b"\x01\xfe\x33\x80"


def frame(data: bytes, opcode: int = 2, *, final: bool = True, mask: bytes = MASK) -> bytes:
    """As a client sends it."""
    head = bytearray(build_head(len(data), opcode))
    head[0] = opcode | (0x80 if final else 0)
    head[1] |= 0x80
    return bytes(head) + mask + unmask(data, mask, 0)


def join(reader: FrameReader, stream: bytes, cuts: list[int]) -> list[object]:
    """Events with the pieces of a message put together."""
    found: list[object] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for event in reader.feed(stream[start:end]):
            last = found[-1] if found else None
            if isinstance(event, Piece) and not event.first:
                assert isinstance(last, Piece)
                found[-1] = Piece(last.data + event.data, True)
            else:
                found.append(event)
    return found


def test_the_answer_to_a_key_is_the_one_of_the_standard() -> None:
    assert build_accept("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("key", ["", "eA==", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ==x", "ü"])
def test_a_key_that_is_not_16_bytes_is_none(key: str) -> None:
    assert not is_valid_key(key)
    assert is_valid_key("dGhlIHNhbXBsZSBub25jZQ==")


def test_unmasking_is_undone_by_masking_at_every_offset() -> None:
    data = bytes(range(256)) * 3
    for offset in range(4):
        assert unmask(unmask(data, MASK, offset), MASK, offset) == data
    assert unmask(data, MASK, 0)[5:] == unmask(data[5:], MASK, 5)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames_of_every_size_come_as_they_were_sent(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert FrameReader().feed(frame(data)) == [Piece(data, True)]


def test_the_cuts_of_the_network_do_not_matter() -> None:
    chance = random.Random(7)
    stream = frame(b"a" * 300) + frame(b"hi", 9) + frame(b"", 2) + frame(b"one", 1, final=False)
    stream += frame(b"", 10) + frame(b"two", 0) + frame(b"\x03\xe8bye", 8)
    whole = join(FrameReader(), stream, [])
    assert whole == [
        Piece(b"a" * 300, True), WebSocketPing(b"hi"), Piece(b"", True), Piece(b"onetwo", True), Close(b"\x03\xe8bye"),
    ]  # fmt: skip
    for _ in range(200):
        cuts = sorted(chance.sample(range(1, len(stream)), chance.randrange(1, 20)))
        assert join(FrameReader(), stream, cuts) == whole
    assert join(FrameReader(), stream, list(range(1, len(stream)))) == whole


def test_a_message_is_handed_on_before_it_is_complete() -> None:
    reader = FrameReader()
    begun = frame(b"x" * 100_000)[:1000]
    [piece] = reader.feed(begun)
    assert isinstance(piece, Piece) and piece.data == b"x" * (1000 - 14)


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\x82\x05hello", id="not masked"),
        pytest.param(b"\xc2\x85", id="reserved bit"),
        pytest.param(b"\x83\x80", id="unknown opcode"),
        pytest.param(b"\x8b\x80", id="unknown control opcode"),
        pytest.param(b"\x80\x80", id="continuation of nothing"),
        pytest.param(b"\x89\xfe\x00\x80", id="long ping"),
        pytest.param(b"\x09\x80", id="fragmented ping"),
        pytest.param(b"\x82\xff" + b"\xff" * 8 + MASK, id="length beyond 63 bits"),
        pytest.param(frame(b"a", 2, final=False) + frame(b"b", 2), id="message within a message"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="HTTP"),
    ],
)
def test_what_is_not_the_protocol_is_refused(stream: bytes) -> None:
    with pytest.raises(FramingError):
        FrameReader().feed(stream)


def test_noise_ends_in_events_or_in_a_refusal() -> None:
    chance = random.Random(1)
    for _ in range(500):
        reader = FrameReader()
        try:
            for _ in range(20):
                reader.feed(chance.randbytes(chance.randrange(40)))
        except FramingError:
            continue


def test_what_we_send_is_whole_and_not_masked() -> None:
    assert build_message(b"abc") == b"\x82\x03abc"
    assert build_close(1000, "x" * 200)[:4] == b"\x88\x7d\x03\xe8"
    assert build_head(70_000) == b"\x82\x7f" + (70_000).to_bytes(8, "big")
