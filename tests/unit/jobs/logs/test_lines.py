"""Lines of one container's log: however it is cut into pieces, and after the connection broke."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.client.contract import Client, LogOptions
from trainmaster.jobs.logs.lines import MAX_TEXT, LineSplitter, Position, Stamped, read_lines

pytestmark = pytest.mark.unit

TIMES = [f"2026-11-15T12:00:{second:02}.000000000Z" for second in range(4)]
BIG = MAX_TEXT + 5
TEXTS = (b"one", b"", b"\xff\0 50%\r 100%\r", b"caf\xc3\xa9")
LOG = b"".join(f"{time} ".encode() + text + b"\n" for time, text in zip(TIMES, TEXTS, strict=True))


def split(pieces: list[bytes]) -> list[Stamped]:
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.finish()


@given(st.lists(st.integers(0, len(LOG)), max_size=8).map(sorted))
def test_it_does_not_matter_where_pieces_are_cut(cuts: list[int]) -> None:
    edges = [0, *cuts, len(LOG)]
    pieces = [LOG[start:end] for start, end in itertools.pairwise(edges)]
    assert split(pieces) == list(zip(TIMES, TEXTS, strict=True))


@pytest.mark.parametrize("size", [1000, 1 << 18, 5 << 20])
@pytest.mark.parametrize(
    ("length", "want"),
    [(MAX_TEXT, [MAX_TEXT]), (MAX_TEXT + 1, [MAX_TEXT, 1]), (3 * MAX_TEXT, [MAX_TEXT] * 3)],
)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_long_line_comes_in_parts_of_one_size(size: int, length: int, want: list[int], end: bytes) -> None:
    log = f"{TIMES[0]} ".encode() + b"x" * length + end + (LOG if end else b"")
    found = split([log[start : start + size] for start in range(0, len(log), size)])
    assert [len(text) for _, text in found[: len(want)]] == want
    assert {time for time, _ in found[: len(want)]} == {TIMES[0]}
    assert found[len(want) :] == (list(zip(TIMES, TEXTS, strict=True)) if end else [])


def test_a_line_without_an_end_is_not_held_in_memory() -> None:
    splitter = LineSplitter()
    parts = [part for _ in range(64) for part in splitter.feed(b"x" * (1 << 18))]
    assert sum(len(text) for _, text in parts) >= 14 << 20
    assert len(splitter._rest) <= MAX_TEXT


class BrokenLogs:
    """A client whose connection breaks after so many bytes of the log."""

    def __init__(self, log: bytes, bytes_each: list[int]) -> None:
        self._log, self._bytes_each = log, bytes_each

    async def logs(self, name: str, namespace: str, options: LogOptions) -> AsyncIterator[bytes]:
        size = self._bytes_each.pop(0)
        for start in range(0, size, 1 << 16):
            yield self._log[start : min(size, start + (1 << 16))]
        if size < len(self._log):
            raise ConnectionResetError


def test_parts_of_a_long_line_come_once_when_the_connection_breaks_in_its_middle() -> None:
    log = f"{TIMES[0]} first\n{TIMES[1]} ".encode() + b"x" * (2 * BIG) + f"\n{TIMES[2]} last\n".encode()
    client = BrokenLogs(log, [20, BIG + 500, len(log)])
    position, texts = Position(), list[bytes]()

    async def read() -> None:
        batches: Any = read_lines(cast("Client", client), "n", "p", LogOptions(), position)
        async for batch in batches:
            texts.extend(position.advance(line)[1] for line in batch)

    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            asyncio.run(read())
    asyncio.run(read())
    assert [len(text) for text in texts] == [5, MAX_TEXT, MAX_TEXT, 10, 4]


class KubeletLogs:
    """A kubelet compares the time of each part of a long line with `since_time`, and stamps only the first one."""

    async def logs(self, name: str, namespace: str, options: LogOptions) -> AsyncIterator[bytes]:
        whole = options.since_time == ""
        begin = f"{TIMES[0]} the beginning, " if whole else ""
        yield f"{begin}the end\n{TIMES[1]} last\n".encode()


def test_the_rest_of_a_line_that_was_read_is_no_line_when_it_is_asked_for_what_comes_later() -> None:
    position, texts = Position(), list[bytes]()

    async def read() -> None:
        batches: Any = read_lines(cast("Client", KubeletLogs()), "n", "p", LogOptions(), position)
        async for batch in batches:
            texts.extend(position.advance(line)[1] for line in batch)

    for _ in range(2):
        asyncio.run(read())
    assert texts == [b"the beginning, the end", b"last"]
