"""A command keeps its own exit code when nobody reads its streams: a closed pipe, a hung-up terminal, a closed stream.

Python ends with 120 where it cannot flush a stream at its exit. Whether it buffers is set by the environment, so every
case runs both ways.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.server import clean_environ, command, launch_server

pytestmark = pytest.mark.e2e

CASES = {
    "version": (("version",), 0),
    "help": (("--help",), 0),
    "an unknown command": (("nonsense",), 2),
    "a wrong command line": (("list", "--nonsense"), 2),
    "no server": (("status",), 3),
    "no server to list from": (("list",), 3),
    "settings": (("config",), 0),
    "a file that is not there": (("check", "-f", "absent.yaml"), 2),
    "nothing to run": (("run", "absent.py"), 240),
}
BUFFERING = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def start(
    arguments: Sequence[str], home: Path, unbuffered: str, *, stdout: int, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    environ = clean_environ({"TRAINMASTER_HOME": str(home), "PYTHONUNBUFFERED": unbuffered})
    return subprocess.Popen(
        command(*arguments), env=environ, cwd=home, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
    )


def make_deaf_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def make_hung_up_terminal() -> int:
    """Writing answers EIO. It is nobody's controlling terminal, so no signal comes with it."""
    master, slave = os.openpty()
    os.close(master)
    return slave


@BUFFERING
@pytest.mark.parametrize("make", [make_deaf_pipe, make_hung_up_terminal])
def test_commands_keep_their_exit_codes_when_nobody_reads(
    tmp_path: Path, make: Callable[[], int], unbuffered: str
) -> None:
    deaf = make()
    running = {case: start(words, tmp_path, unbuffered, stdout=deaf, stderr=deaf) for case, (words, _) in CASES.items()}
    os.close(deaf)
    ended = {case: process.wait(60) for case, process in running.items()}
    assert ended == {case: code for case, (_, code) in CASES.items()}


def test_commands_keep_their_exit_codes_without_streams(tmp_path: Path) -> None:
    environ = clean_environ({"TRAINMASTER_HOME": str(tmp_path)})
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    running = {
        case: subprocess.Popen([*closing, *command(*words)], env=environ, cwd=tmp_path)
        for case, (words, _) in CASES.items()
    }
    ended = {case: process.wait(60) for case, process in running.items()}
    assert ended == {case: code for case, (_, code) in CASES.items()}


@BUFFERING
def test_output_that_cannot_be_stored_is_a_failure(tmp_path: Path, unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        process = start(["config"], tmp_path, unbuffered, stdout=full.fileno(), stderr=subprocess.PIPE)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert b"No space left on device" in said


def test_a_reader_that_has_seen_enough_ends_what_would_go_on_and_a_closed_window_the_server(tmp_path: Path) -> None:
    server = launch_server(tmp_path / "home", environ={"TRAINMASTER_PROCESS_WORKLOADS": "false"})
    try:
        for make in (make_deaf_pipe, make_hung_up_terminal):
            deaf = make()
            process = start(["top", "--watch", "--interval", "0.2"], server.home, "", stdout=deaf)
            os.close(deaf)
            assert process.wait(30) == 0
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(30) == 0
        assert not (server.home / "server.json").exists()
    finally:
        server.stop()
