"""The power fails in the middle of anything, start-up included; whatever was not synced may be lost or torn."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from tests.crash.bugs import STORES
from tests.crash.history import History
from tests.crash.load import LIMITS, run_load
from tests.crash.torn_disk import TornDisk, quiet_about_lost_power
from trainmaster.store.contract import StoreError
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.crash


class Machine:
    """One store directory through many power cuts."""

    def __init__(self, directory: Path, seed: int, *, bug: str = "", synchronous: str = "FULL") -> None:
        self.directory = directory
        self.history = History()
        self.starts_cut_short = 0
        self._rng = random.Random(seed)
        self._seed = seed
        self._store = STORES[bug]
        self._synchronous = synchronous
        self._life = 0

    def run_until_cut(self, commit: str) -> list[str]:
        """Boots, writes until the power fails, boots again and checks."""
        self._life += 1
        # The first lives are so short that making the file is what is cut short.
        cut_after = 2 * self._life if self._life <= 6 else self._rng.randrange(1, 3000)
        disk = TornDisk(f"torn-{id(self)}-{self._life}", self._rng, cut_after)
        options = SqliteOptions(
            limits=LIMITS,
            commit=commit,
            compact_rows=16,
            checkpoint_pages=30,
            idle_seconds=0.01,
            synchronous=self._synchronous,
            vfs=f"torn-{id(self)}-{self._life}",
            fatal=lambda what, error: None,
        )
        try:
            with quiet_about_lost_power():
                run_virtual(self._live(options))
        finally:
            disk.reboot()
        assert not disk.has_power
        return run_virtual(self._check())

    async def _live(self, options: SqliteOptions) -> None:
        started = False
        try:
            # Closing the connection on a dead disk fails as well; what counts is what is found after the reboot.
            with suppress(apsw.IOError, StoreError, ExceptionGroup):
                async with self._store.open(self.directory, VirtualClock(), options) as store:
                    started = True
                    async with asyncio.timeout(3600):
                        await run_load(store, self.history, writers=8, seed=self._seed, life=self._life)
        finally:
            self.starts_cut_short += not started

    async def _check(self) -> list[str]:
        async with SqliteStore.open(self.directory, VirtualClock(), SqliteOptions(limits=LIMITS)) as store:
            return self.history.find_violations(store)


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_nothing_acknowledged_is_lost_in_a_power_cut(tmp_path: Path, commit: str) -> None:
    machine = Machine(tmp_path / "store", seed=11)
    for _ in range(25):
        assert machine.run_until_cut(commit) == []
    assert machine.history.acks > 1000
    assert machine.starts_cut_short > 0, "some cuts hit the start itself"


@pytest.mark.parametrize(
    ("bug", "synchronous"),
    [
        pytest.param("", "OFF", id="a store that does not sync"),
        pytest.param("", "NORMAL", id="a store that syncs at checkpoints only"),
        pytest.param("ack_before_commit", "FULL", id="a store that acknowledges before the commit"),
    ],
)
def test_the_same_check_finds_a_store_that_does_not_wait_for_the_disk(
    tmp_path: Path, bug: str, synchronous: str
) -> None:
    machine = Machine(tmp_path / "store", seed=12, bug=bug, synchronous=synchronous)
    for _ in range(10):
        try:
            violations = machine.run_until_cut("inline")
        except StoreError as error:
            assert "damaged" in str(error), "without syncs the file itself may not survive"
            return
        if violations:
            return
    pytest.fail("not noticed in 10 power cuts")
