"""Bytes that change on the disk: what was acknowledged and cannot be read any more is missed and said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from trainmaster.store import database, high_water, wal
from trainmaster.store.contract import Compacted, StoreError
from trainmaster.store.damages import Damage, list_damages
from trainmaster.store.salvage import REVISION_JUMP
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

_WRITES = 20

_CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteOptions, SqliteStore

async def main():
    options = SqliteOptions(commit="inline", checkpoint_pages=int(sys.argv[2]), idle_seconds=3600)
    async with SqliteStore.open(Path(sys.argv[1]), SystemClock(), options) as store:
        for number in range(int(sys.argv[3])):
            await store.durable(store.put("a", f"n{number}", bytes([number]) * 9000).revision)
        while store._busy:
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def _write_and_die(home: Path, *, checkpoint_pages: int = 200, writes: int = _WRITES) -> None:
    """A process that is killed after so many acknowledged writes of about a page each."""
    command = [sys.executable, "-c", _CHILD, str(home), str(checkpoint_pages), str(writes)]
    assert subprocess.run(command).returncode == -9


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("killed") / "store"
    _write_and_die(home)
    return home


@pytest.fixture
def home(tmp_path: Path, killed: Path) -> Path:
    """Of a process that was killed after `_WRITES` acknowledged writes."""
    return Path(shutil.copytree(killed, tmp_path / "store"))


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def _flip_frame(home: Path, frame: int, *, inside: int = 5000) -> None:
    _flip(home / "store.db-wal", 32 + (frame - 1) * database.FRAME_BYTES + inside)


def _find_last_frame(home: Path) -> int:
    return wal.inspect(home / "store.db-wal", 0).last


def _open(home: Path) -> tuple[int, set[str], Damage | None]:
    """What a start finds: revision, names, damage. Nothing is left open."""

    async def main() -> tuple[int, set[str], Damage | None]:
        async with SqliteStore.open(home, VirtualClock()) as store:
            return store.revision, {record.name for record in store.scan("a")}, store.damage

    return run_virtual(main())


def test_a_killed_store_without_damage_says_nothing(home: Path) -> None:
    assert _open(home) == (_WRITES, {f"n{number}" for number in range(_WRITES)}, None)
    assert list_damages(home) == []


@pytest.mark.parametrize("inside", [2, 6, 10, 18, 5000], ids=["page", "size", "salt", "checksum", "content"])
def test_a_flipped_byte_in_the_log_is_said_and_revisions_jump_ahead(
    home: Path, inside: int, caplog: pytest.LogCaptureFixture
) -> None:
    _flip_frame(home, _find_last_frame(home) // 2, inside=inside)
    damaged_log = (home / "store.db-wal").read_bytes()
    revision, names, damage = _open(home)
    assert damage is not None
    assert 0 < damage.kept < _WRITES and damage.missing == _WRITES - damage.kept
    assert names == {f"n{number}" for number in range(damage.kept)}
    assert revision == damage.continues == _WRITES + REVISION_JUMP
    assert f"{damage.missing} acknowledged writes or more after revision {damage.kept} are lost" in caplog.text
    assert list_damages(home) == [damage]
    assert Path(damage.aside).read_bytes() == damaged_log
    assert Path(damage.aside).stat().st_mode & 0o777 == 0o600


def test_the_very_last_commit_is_missed_too(home: Path) -> None:
    _flip_frame(home, _find_last_frame(home))
    _, _, damage = _open(home)
    assert damage is not None and damage.missing == 1


@pytest.mark.parametrize("offset", [1, 17])
def test_a_damaged_header_of_the_log_is_said(home: Path, offset: int) -> None:
    _flip(home / "store.db-wal", offset)
    _, names, damage = _open(home)
    assert damage is not None and damage.missing == _WRITES and names == set()


def test_a_log_that_is_gone_is_missed(home: Path) -> None:
    (home / "store.db-wal").unlink()
    _, _, damage = _open(home)
    assert damage is not None and damage.missing == _WRITES and damage.aside == ""


def test_without_a_mark_later_commits_in_the_log_tell(home: Path) -> None:
    """A power cut may take the mark; a home of a former version never had one."""
    (home / high_water.FILE).unlink()
    _flip_frame(home, _find_last_frame(home) // 2)
    revision, _, damage = _open(home)
    assert damage is not None and damage.missing >= 3 and revision >= REVISION_JUMP


def test_a_torn_last_commit_without_a_mark_is_no_damage(home: Path) -> None:
    """That is what a power cut leaves of a commit that nobody was told of."""
    (home / high_water.FILE).unlink()
    _flip_frame(home, _find_last_frame(home))
    assert _open(home)[2] is None
    assert _open(home)[0] == _WRITES - 1


def test_what_a_power_cut_tore_is_not_counted_twice(home: Path) -> None:
    for _ in range(3):
        (home / high_water.FILE).unlink()
        _flip_frame(home, _find_last_frame(home))
        _write_and_die(home, writes=2)
    assert list_damages(home) == []


def test_a_damaged_mark_is_no_mark(home: Path) -> None:
    _flip(home / high_water.FILE, 1)
    assert _open(home)[2] is None


def test_a_watcher_that_saw_lost_revisions_lists_again(home: Path) -> None:
    _flip_frame(home, 4)

    async def main() -> None:
        async with SqliteStore.open(home, VirtualClock()) as store:
            for seen in (3, _WRITES):
                with pytest.raises(Compacted):
                    store.watch("a", seen)
            store.watch("a", store.revision).close()

    run_virtual(main())


def test_the_damage_is_found_once(home: Path) -> None:
    _flip_frame(home, 4)
    first = _open(home)
    assert first[2] is not None
    again = _open(home)
    assert again == (first[0], first[1], None) and len(list_damages(home)) == 1


@pytest.mark.parametrize("frame", [1, -1])
def test_a_damaged_log_that_was_copied_already_loses_nothing(tmp_path: Path, killed: Path, frame: int) -> None:
    _write_and_die(tmp_path, checkpoint_pages=_find_last_frame(killed))
    last = _find_last_frame(tmp_path)
    mark = high_water.HighWater(tmp_path)
    copied = mark.read_copied()
    mark.close()
    assert copied is not None and copied.frames == last, "the checkpoint came last"
    _flip_frame(tmp_path, frame if frame > 0 else last)
    revision, names, damage = _open(tmp_path)
    assert damage is None and revision == len(names) == _WRITES


def test_every_flipped_byte_of_the_log_is_found_or_harmless(tmp_path: Path) -> None:
    """Somewhere in every frame, header and content; with a checkpoint in between."""
    _write_and_die(tmp_path / "first", checkpoint_pages=12, writes=14)
    frames = _find_last_frame(tmp_path / "first")
    for number in range(frames):
        home = tmp_path / f"n{number}"
        shutil.copytree(tmp_path / "first", home)
        _flip_frame(home, number + 1, inside=(number * 797) % database.FRAME_BYTES)
        _, names, damage = _open(home)
        assert (damage is None) == (len(names) == 14), f"frame {number + 1}"
        shutil.rmtree(home)


def _damage_page(content: bytearray, page: int) -> None:
    content[page * database.PAGE_BYTES : page * database.PAGE_BYTES + 16] = b"\xff" * 16


def _cut(content: bytearray, page: int) -> None:
    del content[page * database.PAGE_BYTES + 100 :]


@pytest.mark.parametrize("harm", [_damage_page, _cut])
@pytest.mark.parametrize("page", [0, 1, 5])
def test_a_damaged_database_is_refused_in_a_sentence(
    home: Path, harm: Callable[[bytearray, int], None], page: int
) -> None:
    _open(home)
    content = bytearray((home / database.FILE).read_bytes())
    harm(content, page)
    (home / database.FILE).write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged.*Restore a backup with `trainmaster restore`"):
        _open(home)


def test_the_mark_costs_one_short_write_for_each_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock(), SqliteOptions(commit="inline")) as store:
            await store.durable(store.put("a", "x", b"1").revision)
            mark = high_water.HighWater(tmp_path)
            assert mark.read() == store.durable_revision
            mark.close()

    run_virtual(main())
    assert (tmp_path / high_water.FILE).stat().st_size == 4096
    assert os.stat(tmp_path / high_water.FILE).st_mode & 0o777 == 0o600


def test_a_store_of_a_former_version_opens(home: Path) -> None:
    _open(home)
    (home / high_water.FILE).unlink()
    assert _open(home)[0] == _WRITES


def test_sqlite_alone_says_nothing(home: Path) -> None:
    """Why all of this is needed: if SQLite ever complains by itself, it can go."""
    _flip_frame(home, _find_last_frame(home) // 2)
    connection = apsw.Connection(str(home / database.FILE))
    assert 0 < connection.execute("SELECT count(*) FROM log").get < _WRITES
    connection.close()
