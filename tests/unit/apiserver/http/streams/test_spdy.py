"""SPDY framing: streams, headers with shared compression, and hostile peers."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from tests.unit.apiserver.http.streams.spdy_client import SpdyClient, split
from trainmaster.apiserver.http.streams.spdy import (
    DICTIONARY,
    Data,
    GoAway,
    Opened,
    Reset,
    SpdyPing,
    SpdyReader,
    SpdyWriter,
    build_control,
)
from trainmaster.edge.connection import FramingError

pytestmark = pytest.mark.unit


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert len(DICTIONARY) == 1423 and zlib.adler32(DICTIONARY) == 0xE3C6A7C2


def test_streams_headers_data_and_ends_are_read() -> None:
    client = SpdyClient()
    stream = client.open(Streamtype="error", port="80") + client.open(streamtype="data", final=True)
    stream += client.data(1, b"hello") + client.data(1, b"", final=True) + client.reset(3)
    stream += build_control(6, b"\0\0\0\1") + build_control(7, bytes(8))
    wanted = [
        Opened(1, {"streamtype": "error", "port": "80"}, False),
        Opened(3, {"streamtype": "data"}, True),
        Data(1, b"hello", False),
        Data(1, b"", True),
        Reset(3),
        SpdyPing(b"\0\0\0\1"),
        GoAway(),
    ]
    assert SpdyReader().feed(stream) == wanted
    reader = SpdyReader()
    bytewise = [event for number in range(len(stream)) for event in reader.feed(stream[number : number + 1])]
    assert b"".join(event.data for event in bytewise if isinstance(event, Data)) == b"hello"
    assert [event for event in bytewise if not isinstance(event, Data)] == [
        event for event in wanted if not isinstance(event, Data)
    ]


def test_data_is_handed_on_before_its_frame_is_complete() -> None:
    begun = SpdyClient().data(1, b"x" * 1_000_000, final=True)
    reader = SpdyReader()
    assert reader.feed(begun[:1008]) == [Data(1, b"x" * 1000, False)]
    [last] = reader.feed(begun[1008:])
    assert isinstance(last, Data) and last.final and len(last.data) == 999_000


def test_settings_and_windows_are_ignored_and_headers_keep_the_compression_in_step() -> None:
    client = SpdyClient()
    stream = build_control(4, bytes(4)) + build_control(9, bytes(8))
    stream += build_control(8, bytes(4) + client.pack_headers({"a": "b"}))
    assert SpdyReader().feed(stream) == []
    reader = SpdyReader()
    reader.feed(stream)
    assert reader.feed(client.open(a="b")) == [Opened(1, {"a": "b"}, False)]


def bomb() -> bytes:
    return build_control(1, bytes(10) + SpdyClient().compress(bytes(200_000)))


def cut_headers() -> bytes:
    return build_control(1, bytes(10) + SpdyClient().compress(struct.pack(">III", 1, 9, 9)))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\x80\x02\0\x01\0\0\0\0", id="version 2"),
        pytest.param(build_control(17, b""), id="unknown frame"),
        pytest.param(build_control(1, b"abc"), id="short SYN_STREAM"),
        pytest.param(build_control(3, b""), id="short RST_STREAM"),
        pytest.param(build_control(1, bytes(10) + b"not zlib"), id="no headers"),
        pytest.param(build_control(1, bytes(17_000)), id="long control frame"),
        pytest.param(bomb(), id="headers that explode"),
        pytest.param(cut_headers(), id="headers cut short"),
        pytest.param(build_control(1, bytes(10) + SpdyClient().compress(b"\0\1\0\0")), id="65,536 headers"),
        pytest.param(b"\xff" * 64, id="ones"),
    ],
)
def test_what_is_not_the_protocol_is_refused(stream: bytes) -> None:
    with pytest.raises(FramingError):
        SpdyReader().feed(stream)


def test_noise_ends_in_events_or_in_a_refusal() -> None:
    chance = random.Random(3)
    for _ in range(500):
        reader = SpdyReader()
        try:
            for _ in range(20):
                reader.feed(chance.choice((b"\x80\x03\0", b"")) + chance.randbytes(chance.randrange(40)))
        except FramingError:
            continue


def test_what_we_send_can_be_read_by_a_client() -> None:
    writer = SpdyWriter()
    inflate = zlib.decompressobj(zdict=DICTIONARY)
    for stream in (1, 3):
        [(kind, number, block)] = split(writer.build_reply(stream))
        assert (kind, number, inflate.decompress(block)) == (2, stream, bytes(4))
    assert split(writer.build_data(5, b"abc", final=True)) == [(-1, 5, b"abc")]
    assert split(writer.build_goaway(5)) == [(7, 5, bytes(4))]
