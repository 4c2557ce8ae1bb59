"""Remote start between the Pods of a gang: streams, exit codes, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainmaster.remote_start import program
from trainmaster.remote_start.program import split_arguments

pytestmark = pytest.mark.node

PROGRAM = str(program.__file__)


def make_env(directory: Path, host: str) -> dict[str, str]:
    return {"PATH": os.defpath, "TRAINMASTER_GANG_DIR": str(directory), "HOSTNAME": host, "WHO": host}


@contextmanager
def serving(directory: Path, host: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, PROGRAM, "serve"], env=make_env(directory, host))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def start(directory: Path, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, "start", *argv]
    env = make_env(directory, "job-launcher-0-0")
    return subprocess.run(command, env=env, input=given, capture_output=True, text=True, timeout=60, check=False)


def test_a_command_runs_on_the_worker_with_the_agents_streams_and_its_code_comes_back(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    with serving(deep, "job-node-0-0"):
        options = ("-x", "-o", "ConnectionAttempts=10", "-p", "2222")
        done = start(deep, *options, "job-node-0-0.job", "echo $WHO; cat; echo bad >&2; exit 7", given="input")
        assert (done.returncode, done.stdout, done.stderr) == (7, "job-node-0-0\ninput", "bad\n")
        assert start(deep, "root@job-node-0-0", "kill -9 $$").returncode == 137
        assert start(deep, "job-launcher-0-0.job", "echo $WHO").stdout == "job-launcher-0-0\n", "its own host: in place"
    assert list(deep.iterdir()) == []


def test_what_an_agent_started_ends_with_it(tmp_path: Path) -> None:
    with serving(tmp_path, "w"):
        command = [sys.executable, PROGRAM, "start", "w", "echo $$; exec sleep 600"]
        agent = subprocess.Popen(command, env=make_env(tmp_path, "l"), stdout=subprocess.PIPE, text=True)
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        agent.send_signal(signal.SIGKILL)
        agent.wait(30)
        agent.stdout.close()
        for _ in range(1000):
            if not Path(f"/proc/{pid}").exists():
                return
            time.sleep(0.02)
        raise AssertionError("it still runs")


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        pytest.param(["h", "a", "b"], ("h", ["a", "b"]), id="plain"),
        pytest.param(["-x", "-o", "A=b", "-oC=d", "u@h", "c"], ("h", ["c"]), id="options and a user"),
    ],
)
def test_arguments_of_ssh_are_understood(argv: list[str], want: tuple[str, list[str]]) -> None:
    assert split_arguments(argv) == want
