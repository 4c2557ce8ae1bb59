"""What an attempt does when the disk is full, and with what is in its pipes at the end.

Its end is worth more than old logs, and is told only when recorded.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from trainmaster.shim import attempt as attempts
from trainmaster.shim.attempt import AlreadyBegun, Attempt, enlarge
from trainmaster.shim.log_sink import HEAD_BYTES, STDERR, STDOUT, LogSink
from trainmaster.shim.loop import Loop
from trainmaster.shim.protocol import ContainerSpec, Exited, Paths, SandboxSpec, Started, decode, encode, write_whole
from trainmaster.shim.sandbox.build import Sandbox

pytestmark = pytest.mark.unit

EXITED = Exited(5, 1.0)


def make_attempt(tmp_path: Path, told: list[str]) -> tuple[Attempt, Paths]:
    paths = Paths(str(tmp_path))
    os.makedirs(tmp_path / "run")
    spec = ContainerSpec("main", 0, ("true",), {}, "/")
    write_whole(paths.spec("main", 0), encode(spec))
    sandbox = Sandbox(paths, SandboxSpec("u", "p", "default", "host"))
    attempt = Attempt(Loop(), paths, sandbox, spec, lambda _: told.append("started"), lambda _: told.append("exited"))
    return attempt, paths


def test_the_mark_of_the_start_is_made_once(tmp_path: Path) -> None:
    first, _ = make_attempt(tmp_path / "a", [])
    first.claim()
    second = Attempt(Loop(), Paths(str(tmp_path / "a")), first._sandbox, first.spec, print, print)
    with pytest.raises(AlreadyBegun):
        second.claim()
    os.close(first._mark)


def test_a_full_disk_gives_up_the_intent_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    attempt, paths = make_attempt(tmp_path, told)

    def write(path: str, content: bytes, mode: int = 0o600) -> None:
        if os.path.exists(paths.spec("main", 0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, content, mode)

    monkeypatch.setattr(attempts, "write_whole", write)
    attempt.exited = EXITED
    attempt._record_end()
    assert decode(Exited, Path(paths.exited("main", 0)).read_bytes()) == EXITED
    assert told == ["exited"]


def test_an_end_that_cannot_be_recorded_is_kept_and_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    attempt, _ = make_attempt(tmp_path, told)

    def refuse(path: str, content: bytes, mode: int = 0o600) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(attempts, "write_whole", refuse)
    attempt.exited = EXITED
    attempt._record_end()
    assert told == []
    monkeypatch.undo()
    attempt._record_end()
    assert told == ["exited"]


@pytest.mark.parametrize("is_held", [False, True], ids=["its pipe is closed", "somebody holds its pipe"])
def test_what_is_in_the_pipes_is_logged_even_if_the_machine_was_too_busy_to_read_it(
    tmp_path: Path, is_held: bool
) -> None:
    """The time for reading was over before there was any: the end comes, with all that was printed before it."""
    told: list[str] = []
    attempt, paths = make_attempt(tmp_path, told)
    os.makedirs(os.path.dirname(paths.log("main", 0)))
    attempt._sink = LogSink(paths.log("main", 0), 1 << 30, 1)
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    enlarge(reader, 1 << 18)
    attempt._add_output(reader, STDOUT)
    attempt.started = Started(1, 1.0)
    lines = [b"line %d\n" % number for number in range(100)]
    written = b"".join(lines) * (fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) // 1024)
    assert os.write(writer, written) == len(written) > 32_768
    if not is_held:
        os.close(writer)
    attempt.note_death(0)
    attempt.note_tree_gone()
    attempt._give_up_draining()
    stored = Path(paths.log("main", 0)).read_bytes().splitlines()
    assert b"".join(entry[HEAD_BYTES:] + b"\n" for entry in stored) == written
    assert told == ["exited"]
    if is_held:
        os.close(writer)


def test_a_traceback_stands_after_what_was_printed_before_it_however_much_of_that_waits(tmp_path: Path) -> None:
    """Otherwise the last words of a failed program do not show why, on a machine that is too busy to read along."""
    attempt, paths = make_attempt(tmp_path, [])
    os.makedirs(os.path.dirname(paths.log("main", 0)))
    attempt._sink = LogSink(paths.log("main", 0), 1 << 30, 1)
    ends = {}
    for stream in (STDOUT, STDERR):
        reader, ends[stream] = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        enlarge(reader, 1 << 18)
        attempt._add_output(reader, stream)
    size = fcntl.fcntl(ends[STDOUT], fcntl.F_GETPIPE_SZ)
    os.write(ends[STDOUT], b"x" * (size - 16) + b"\nthe last line\n")
    os.write(ends[STDERR], b"ValueError: no data\n")
    errors = next(fd for fd, stream in attempt._outputs.items() if stream == STDERR)
    attempt._pump(errors)
    texts = [entry[HEAD_BYTES:] for entry in Path(paths.log("main", 0)).read_bytes().splitlines()]
    assert texts[-2:] == [b"the last line", b"ValueError: no data"]
    for fd in tuple(attempt._outputs):
        attempt._close_output(fd)
    attempt._sink.close()
    for fd in ends.values():
        os.close(fd)
