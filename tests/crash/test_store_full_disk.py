"""The disk is full, really (a small tmpfs): nothing acknowledged is lost, the process lives, and goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.small_disk import SmallDisk, small_disk
from trainmaster.kit.clock import SystemClock
from trainmaster.store.contract import NoSpace
from trainmaster.store.sqlite import SqliteOptions, SqliteStore

pytestmark = pytest.mark.crash

VALUE = os.urandom(20_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=48) as disk:
        yield disk


async def _write_until_refused(store: SqliteStore, prefix: str = "n") -> list[str]:
    """The names that were acknowledged."""
    names: list[str] = []
    for number in range(5000):
        try:
            record = store.put("a", f"{prefix}{number}", VALUE)
            async with asyncio.timeout(1.0):
                await store.durable(record.revision)
        except (NoSpace, TimeoutError):
            return names
        names.append(record.name)
    pytest.fail("the disk was not full")


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_a_full_disk_refuses_writes_and_they_go_on_when_there_is_room(disk: SmallDisk, commit: str) -> None:
    async def main() -> None:
        options = SqliteOptions(commit=commit, idle_seconds=0.01)
        async with SqliteStore.open(disk.path / "store", SystemClock(), options) as store:
            await store.durable(store.put("a", "first", VALUE).revision)
            disk.fill()
            known = await _write_until_refused(store)
            with pytest.raises(NoSpace, match=r"no space left on the disk of .*: free some"):
                store.put("a", "refused", VALUE)
            assert store.get("a", "first") is not None, "reads go on"
            late = store.revision
            disk.make_room()
            async with asyncio.timeout(20):
                await store.durable(late)
            await store.durable(store.put("a", "last", VALUE).revision)
        async with SqliteStore.open(disk.path / "store", SystemClock()) as store:
            names = {record.name for record in store.scan("a")}
            assert {"first", "last", *known} <= names and "refused" not in names
            assert store.damage is None

    asyncio.run(main())


def test_with_spare_room_a_store_writes_on_while_the_disk_is_full(disk: SmallDisk) -> None:
    async def main() -> None:
        options = SqliteOptions(idle_seconds=0.01)
        async with SqliteStore.open(disk.path / "store", SystemClock(), options) as store:
            for number in range(100):
                store.put("a", f"old{number}", VALUE)
            assert await store.fill_spare(8 * 1024 * 1024)
            disk.fill()
            for number in range(100):
                await store.durable(store.delete("a", f"old{number}", VALUE).revision)
            assert len(await _write_until_refused(store)) > 100, "8 MiB are more than 200 rows of 20 KB"
        disk.make_room()

    asyncio.run(main())


def test_spare_room_that_cannot_be_had_is_no_error(disk: SmallDisk) -> None:
    async def main() -> None:
        async with SqliteStore.open(disk.path / "store", SystemClock()) as store:
            await store.durable(store.put("a", "x", VALUE).revision)
            disk.fill(leave=2 * 1024 * 1024)
            assert not await store.fill_spare(16 * 1024 * 1024)
            await store.durable(store.put("a", "y", VALUE).revision)
            disk.make_room()
            assert await store.fill_spare(16 * 1024 * 1024)

    asyncio.run(main())


_CHILD = """
import asyncio, os, sys
from pathlib import Path
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteStore

async def main():
    async with SqliteStore.open(Path(sys.argv[1]), SystemClock()) as store:
        number = 0
        while True:
            record = store.put("a", f"n{number}", bytes(20_000))
            await store.durable(record.revision)
            os.write(1, b"%d\\n" % number)
            number += 1

asyncio.run(main())
"""


def test_a_store_that_is_killed_on_a_full_disk_opens_there_with_all_that_it_had(disk: SmallDisk) -> None:
    """SIGKILL while commits wait; then a start while there is still no room."""
    home = disk.path / "store"
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(home)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"0\n"
        disk.fill()
        reader = child.stdout.fileno()
        os.set_blocking(reader, False)
        output = b""
        quiet = 0
        while quiet < 10:
            try:
                output += os.read(reader, 65536)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                signal.sigtimedwait([], 0.1)
        assert child.poll() is None, "it waits"
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    acknowledged = int(output.split()[-1]) if output.split() else 0

    async def look() -> None:
        async with SqliteStore.open(home, SystemClock()) as store:
            assert store.damage is None
            assert store.count("a") >= acknowledged + 1

    asyncio.run(look())
    disk.make_room()
    asyncio.run(look())
