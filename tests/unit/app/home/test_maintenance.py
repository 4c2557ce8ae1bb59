"""Backup and restore of a home without a server: nothing is lost, nothing is deleted."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.inprocess import TypedInput
from trainmaster.app.home.folder import AlreadyRunning, Home, HomeError, ServerInfo
from trainmaster.app.home.maintenance import backup, list_ending, restore
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.history.restores import find_restore
from trainmaster.kit.clock import SystemClock
from trainmaster.shim.protocol import Paths, SandboxSpec, encode
from trainmaster.store.sqlite import SqliteStore

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@contextmanager
def running_shims(home: Home, pods: dict[str, str]) -> Iterator[None]:
    """Pod name by uid: a process that holds the locks of their shims."""
    for uid, name in pods.items():
        (home.pods / uid).mkdir(parents=True)
        spec = SandboxSpec(uid, name, "default", name)
        Path(Paths(f"{home.pods}/{uid}").pod).write_bytes(encode(spec))
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        for uid in pods:
            handle = os.open(Paths(f"{home.pods}/{uid}").lock, os.O_RDWR | os.O_CREAT)
            fcntl.lockf(handle, fcntl.LOCK_EX)
        os.write(ready[1], b"x")
        os.close(done[1])
        os.read(done[0], 1)
        os._exit(0)
    os.close(done[0])
    try:
        os.read(ready[0], 1)
        yield
    finally:
        for descriptor in (done[1], *ready):
            os.close(descriptor)
        os.waitpid(child, 0)


def write(home: Home, name: str, bucket: str = "things", uid: str = "u") -> int:
    async def main() -> int:
        async with SqliteStore.open(home.store, SystemClock()) as store:
            return store.put(bucket, name, f'{{"metadata":{{"uid":"{uid}"}}}}'.encode()).revision

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


def test_running_pods_that_are_not_in_the_backup_are_named(home: Home, tmp_path: Path) -> None:
    with running_shims(home, {"u-1": "in-both", "u-2": "late"}):
        write(home, "default/in-both", "pods", "u-1")
        write(home, "default/gone", "pods", "u-3")
        backup(home, tmp_path / "copy.db")
        assert list_ending(home, tmp_path / "copy.db") == {"u-2": "default/late"}
        with pytest.raises(HomeError, match="does not exist"):
            list_ending(home, tmp_path / "none.db")
    assert list_ending(home, tmp_path / "copy.db") == {}, "nothing runs any more"


def test_restore_asks_before_it_ends_pods(home: Home, tmp_path: Path) -> None:
    write(home, "kept")
    backup(home, tmp_path / "copy.db")
    write(home, "later")

    def type_in(stdin: io.StringIO, *flags: str) -> tuple[int, str]:
        err = io.StringIO()
        words = ["restore", str(tmp_path / "copy.db"), "--home", str(home.root), *flags]
        return main(words, CommandContext({}, io.StringIO(), err, stdin)), err.getvalue()

    with running_shims(home, {"u-1": "late"}):
        code, said = type_in(io.StringIO())
        assert code == exits.FAILED
        assert "the next server ends 1 running Pod not in the backup: default/late; --keep-running keeps" in said
        assert "add --yes" in said
        code, said = type_in(io.StringIO(), "--keep-running")
        assert code == exits.FAILED and "cannot be kept: the store no longer has u-1" in said
        assert [path.name for path in home.root.iterdir() if path.name.startswith("store.")] == []
        assert type_in(TypedInput("no\n"))[0] == exits.FAILED
        assert names(home)[0] == ["kept", "later"]
        assert type_in(TypedInput("yes\n"))[0] == exits.OK
        assert type_in(io.StringIO(), "--yes")[0] == exits.OK
    assert type_in(io.StringIO())[0] == exits.OK, "there is nothing to ask about"
    assert names(home)[0] == ["kept"]


def test_the_history_learns_of_a_restore_and_not_of_one_that_failed(home: Home, tmp_path: Path) -> None:
    home.history.mkdir(parents=True, exist_ok=True)
    write(home, "kept")
    backup(home, tmp_path / "copy.db")
    with pytest.raises(HomeError):
        restore(home, tmp_path / "none.db")
    assert find_restore(home.history) is None
    restore(home, tmp_path / "copy.db")
    found = find_restore(home.history)
    assert found is not None and found.why == "not in the backup copy.db"


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
