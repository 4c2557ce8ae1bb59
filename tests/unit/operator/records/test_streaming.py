"""Logs from the archive as an answer: what can be asked for, and that neither reader nor disk fills the memory."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.messages import Query
from trainmaster.history.archive import Archive
from trainmaster.history.logs import FOLDER
from trainmaster.jobs.logs.contract import Line, LogMark
from trainmaster.jobs.logs.encoding import decode_entry, encode_entry
from trainmaster.operator.records import streaming
from trainmaster.operator.records.streaming import read_log_request, read_pieces

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


def write_log(directory: Path, name: str, *lines: str) -> None:
    """`name`: attempt/rank."""
    attempt, rank = name.split("/")
    file = directory / FOLDER / "js" / attempt / f"node-0-{rank}" / f"pod-{attempt}-{rank}" / "node.0.log"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"2026-01-01T00:00:{number:02}Z stdout F {line}\n" for number, line in enumerate(lines)))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    archive = Archive.open(tmp_path)
    archive.note({}, {"js": "u1"})
    archive.close()
    return tmp_path


def read(directory: Path, query: str) -> bytes:
    async def main() -> bytes:
        async with aclosing(read_pieces(directory, "u1", read_log_request(Query(query), NOW))) as pieces:
            return b"".join([piece async for piece in pieces])

    return asyncio.run(main())


def test_text_has_the_newest_attempt_with_ranks(directory: Path) -> None:
    write_log(directory, "0/0", "old")
    write_log(directory, "1/0", "a", "c")
    write_log(directory, "1/1", "b")
    assert read(directory, "") == b"[node 0] a\n[node 1] b\n[node 0] c\n"
    assert read(directory, "rank=0&tailLines=1") == b"c\n"
    assert read(directory, "attempt=0&pod=pod-0-0&restart=0") == b"old\n"
    assert read(directory, "limitBytes=12") == b"[node 0] a\n["
    assert read(directory, "step=other") == b""


def test_entries_arrive_as_they_were_printed(directory: Path) -> None:
    write_log(directory, "0/0", "a")
    write_log(directory, "1/0", "b")
    found = [decode_entry(line) for line in read(directory, "format=entries&allAttempts=true").splitlines()]
    assert [(entry.attempt, entry.text) for entry in found] == [
        (0, "attempt 0"),
        (0, "a"),
        (1, "attempt 1"),
        (1, "b"),
    ]
    for entry in (LogMark("gap", 1, "gone"), Line(0, "node", 1, "c", "t", b"\xff\x00 raw", 2, "p"), found[1]):
        assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize("query", ["previous=true", "format=xml", "tailLines=-1", "rank=x", "tailLines=1000000"])
def test_what_cannot_be_given_is_refused(directory: Path, query: str) -> None:
    write_log(directory, "0/0", "a")
    with pytest.raises(StatusError) as caught:
        read(directory, query)
    assert caught.value.code in (400, 422)


def test_too_many_logs_are_not_merged(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_MOST_LOGS", 2)
    for rank in range(3):
        write_log(directory, f"0/{rank}", "a")
    with pytest.raises(StatusError, match="choose a rank"):
        read(directory, "")
    assert read(directory, "rank=2") == b"a\n"


def test_of_last_lines_only_the_end_of_a_file_is_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_TAIL_BYTES", 80)
    write_log(directory, "0/0", *(f"line {number}" for number in range(50)))
    assert read(directory, "tailLines=1") == b"[node 0] line 49\n"
    assert read(directory, "tailLines=40") == b"[node 0] line 48\n[node 0] line 49\n"


def test_a_reader_that_leaves_ends_the_reading(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_BATCH", 1)
    write_log(directory, "0/0", *(f"line {number}" for number in range(50)))

    async def main() -> bytes:
        async with aclosing(read_pieces(directory, "u1", read_log_request(Query(""), NOW))) as pieces:
            return await anext(pieces)

    assert asyncio.run(main()) == b"[node 0] line 0\n"
