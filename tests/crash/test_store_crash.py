"""SIGKILL at random moments and at every failpoint, again and again on the same store; the same check after each."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.history import History
from tests.crash.load import LIMITS
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteOptions, SqliteStore

pytestmark = pytest.mark.crash

FAILPOINTS = (
    "store.before_commit",
    "store.after_commit_before_ack",
    "store.after_ack_before_dispatch",
    "store.checkpoint",
    "store.compact",
    "store.pack",
)


class Victim:
    """One store directory through many lives and violent deaths."""

    def __init__(self, directory: Path, seed: int, *, bug: str = "") -> None:
        self.directory = directory
        self.history = History()
        self._rng = random.Random(seed)
        self._seed = seed
        self._bug = bug
        self._life = 0

    def live_and_die(self, *, commit: str = "inline", failpoint: str = "") -> list[str]:
        """Runs the child until it is killed (by us, or at the failpoint), reopens the store and checks it."""
        self._life += 1
        nth = self._rng.randrange(1, 30) if "commit" in failpoint or "ack" in failpoint else self._rng.randrange(1, 4)
        command = [sys.executable, "-m", "tests.crash.store_child", str(self.directory), "--bug", self._bug]
        command += ["--life", str(self._life), "--seed", str(self._seed), "--commit", commit]
        command += ["--failpoints", f"{failpoint}=kill@{nth}"] if failpoint else []
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            try:
                output = _read_until_dead(child, None if failpoint else self._rng.uniform(0.0, 0.15))
            finally:
                child.kill()
        assert child.returncode == -signal.SIGKILL, f"the child ended by itself: {child.returncode}"
        self._take(output)
        return asyncio.run(self._check())

    def _take(self, output: bytes) -> None:
        complete = output[: output.rfind(b"\n") + 1]
        for line in complete.decode().splitlines():
            what, bucket, name, detail = line.split(" ")
            if what == "T":
                self.history.attempt((bucket, name), None if detail == "-" else detail)
            elif what == "A":
                self.history.ack((bucket, name), int(detail))
            else:
                self.history.deliver((bucket, name), int(detail))

    async def _check(self) -> list[str]:
        async with SqliteStore.open(self.directory, SystemClock(), SqliteOptions(limits=LIMITS)) as store:
            return self.history.find_violations(store)


def _read_until_dead(child: subprocess.Popen[bytes], seconds: float | None) -> bytes:
    """All output. `seconds`: how long after its first line the child is killed; None waits for it to die."""
    assert child.stdout is not None
    output = b""
    deadline = time.monotonic() + 20
    while True:
        if not select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            assert output and seconds is not None, "the child does not reach the failpoint"
            child.kill()
            seconds, deadline = None, time.monotonic() + 20
            continue
        chunk = os.read(child.stdout.fileno(), 1 << 16)
        if not chunk:
            return output
        if seconds is not None and not output:
            deadline = time.monotonic() + seconds
        output += chunk


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_at_any_time(tmp_path: Path, commit: str) -> None:
    victim = Victim(tmp_path / "store", seed=1)
    for _ in range(8):
        assert victim.live_and_die(commit=commit) == []
    assert victim.history.acks > 500


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_at_a_failpoint(tmp_path: Path, commit: str) -> None:
    victim = Victim(tmp_path / "store", seed=2)
    for failpoint in FAILPOINTS:
        assert victim.live_and_die(commit=commit, failpoint=failpoint) == [], failpoint
    assert victim.history.acks > 100


@pytest.mark.parametrize(
    ("bug", "failpoint", "want"),
    [
        pytest.param("ack_before_commit", "store.before_commit", "acknowledged", id="acknowledging before the commit"),
        pytest.param("lost_delete", "", "acknowledged", id="losing deletions in compaction"),
        pytest.param("reused_revision", "store.before_commit", "", id="delivering before the commit"),
    ],
)
def test_the_same_check_finds_planted_bugs(tmp_path: Path, bug: str, failpoint: str, want: str) -> None:
    victim = Victim(tmp_path / "store", seed=3, bug=bug)
    for _ in range(6):
        violations = victim.live_and_die(failpoint=failpoint)
        if violations:
            assert any(want in violation for violation in violations), violations
            return
    pytest.fail(f"{bug} was not noticed in 6 deaths")
