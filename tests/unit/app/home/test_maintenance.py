"""Backup and restore of a home without a server: nothing is lost, nothing is deleted."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from trainmaster.app.home.folder import AlreadyRunning, Home, HomeError, ServerInfo
from trainmaster.app.home.maintenance import backup, restore
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteStore

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def write(home: Home, name: str) -> int:
    async def main() -> int:
        async with SqliteStore.open(home.store, SystemClock()) as store:
            return store.put("things", name, b"{}").revision

    return asyncio.run(main())


def names(home: Home) -> tuple[list[str], int]:
    async def main() -> tuple[list[str], int]:
        async with SqliteStore.open(home.store, SystemClock()) as store:
            return [record.name for record in store.scan("things")], store.revision

    return asyncio.run(main())


def test_a_restore_brings_back_what_the_backup_held_and_revisions_jump(home: Home, tmp_path: Path) -> None:
    revision = write(home, "kept")
    file = tmp_path / "copy.db"
    assert backup(home, file) == revision
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    later = write(home, "later")
    start, aside = restore(home, file)
    found, current = names(home)
    assert found == ["kept"]
    assert current == start > later
    assert aside is not None
    assert (aside / "store.db").exists()


def test_a_second_restore_of_one_backup_starts_above_what_clients_saw_after_the_first(
    home: Home, tmp_path: Path
) -> None:
    write(home, "kept")
    backup(home, tmp_path / "copy.db")
    restore(home, tmp_path / "copy.db")
    seen = write(home, "between")
    assert restore(home, tmp_path / "copy.db")[0] > seen


def test_a_damaged_store_can_be_replaced(home: Home, tmp_path: Path) -> None:
    revision = write(home, "kept")
    backup(home, tmp_path / "copy.db")
    (home.store / "store.db").write_bytes(b"no database")
    start, aside = restore(home, tmp_path / "copy.db")
    assert start > revision
    assert names(home) == (["kept"], start)
    assert aside is not None and (aside / "store.db").read_bytes() == b"no database"


def test_a_restore_into_an_empty_home_needs_nothing_set_aside(home: Home, tmp_path: Path) -> None:
    write(home, "kept")
    backup(home, tmp_path / "copy.db")
    other = Home(tmp_path / "other")
    assert restore(other, tmp_path / "copy.db")[1] is None
    assert names(other)[0] == ["kept"]


@pytest.mark.parametrize("content", [None, b"no database", b""], ids=["missing", "not a database", "empty"])
def test_a_file_that_is_no_backup_changes_nothing(home: Home, tmp_path: Path, content: bytes | None) -> None:
    write(home, "kept")
    file = tmp_path / "copy.db"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(HomeError, match=r"copy\.db"):
        restore(home, file)
    assert names(home)[0] == ["kept"]
    assert [path.name for path in home.root.iterdir() if "replaced" in path.name] == []


def test_a_backup_never_overwrites(home: Home, tmp_path: Path) -> None:
    write(home, "kept")
    file = tmp_path / "copy.db"
    file.write_text("mine")
    with pytest.raises(HomeError, match="exists"):
        backup(home, file)
    assert file.read_text() == "mine"


def test_a_home_without_a_store_has_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="nothing to back up"):
        backup(Home(tmp_path / "none"), tmp_path / "copy.db")


def test_a_restore_below_a_running_server_is_refused(home: Home, tmp_path: Path) -> None:
    with home.hold(ServerInfo(1, "1", str(home.root))), pytest.raises(AlreadyRunning):
        restore(home, tmp_path / "copy.db")
