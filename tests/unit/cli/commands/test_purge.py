"""`trainmaster purge` of a home: what goes, what stays, and whom it does not disturb."""

from __future__ import annotations

import fcntl
import io
import os
from pathlib import Path

import pytest

from trainmaster.app.home.folder import Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.installation import removal
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit

GOES = ("store", "pki", "pods", "history", "logs", "bundles", "environments")
YOURS = ("templates", "volumes")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Owner:
    def __init__(self, root: Path) -> None:
        self.root = root / "home"
        for name in (*GOES, *YOURS):
            (self.root / name).mkdir(parents=True)
            (self.root / name / "file").write_text("x" * 2000)
        (self.root / "config.toml").write_text("")
        (self.root / "kubeconfig").write_text("secret")
        (self.root / "lock").touch()
        (self.root / "reserve").touch()
        self.out = self.err = ""

    def __call__(self, *flags: str, types: str | None = None) -> int:
        out, err = io.StringIO(), io.StringIO()
        stdin = io.StringIO() if types is None else Terminal(types)
        code = main(("purge", "--home", str(self.root), *flags), CommandContext({}, out, err, stdin))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def list(self) -> set[str]:
        return set(os.listdir(self.root))


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_a_home_goes_and_what_is_the_owners_stays(owner: Owner) -> None:
    assert owner("--yes") == exits.OK
    assert owner.list() == {"config.toml", *YOURS}
    assert "store" in owner.out and "2.0 KiB" in owner.out and "volumes of claims" in owner.out
    assert "trainmaster kubeconfig --remove" in owner.err
    assert owner("--yes") == exits.FAILED
    assert "is not a home" in owner.err


def test_what_a_restore_replaced_goes_too(owner: Owner) -> None:
    (owner.root / "store.replaced-1").mkdir()
    assert owner("--yes") == exits.OK
    assert owner.list() == {"config.toml", *YOURS}
    assert "all objects before a restore" in owner.out


def test_everything_means_the_folder_too(owner: Owner) -> None:
    assert owner("--everything", "--yes") == exits.OK
    assert not owner.root.exists()
    assert "and the folder itself" in owner.out


def test_what_somebody_else_put_there_stays_and_is_named(owner: Owner) -> None:
    (owner.root / "thesis.tex").write_text("years of work")
    assert owner("--everything", "--yes") == exits.OK
    assert owner.list() == {"thesis.tex"}
    assert "not ours" in owner.out


def test_it_asks_and_only_yes_is_yes(owner: Owner) -> None:
    before = owner.list()
    assert owner() == exits.FAILED
    assert "nobody to ask; add --yes" in owner.err
    assert owner(types="no\n") == exits.FAILED
    assert owner(types="\n") == exits.FAILED
    assert owner("--dry-run") == exits.OK
    assert owner.list() == before
    assert owner(types="yes\n") == exits.OK
    assert "store" not in owner.list()


def test_a_running_server_is_not_disturbed(owner: Owner) -> None:
    home = Home(owner.root)
    with home.hold(ServerInfo(os.getpid(), "1", str(home.root))):
        assert owner("--yes") == exits.ALREADY_RUNNING
        assert "trainmaster purge --stop" in owner.err
        assert "store" in owner.list()


def test_pods_that_live_on_keep_the_home(owner: Owner) -> None:
    pod = owner.root / "pods" / "some-uid"
    pod.mkdir()
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # a shim: a record lock on its file, held by a process of its own
        handle = os.open(pod / "shim.json", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(handle, fcntl.LOCK_EX)
        os.write(ready[1], b"x")
        os.close(done[1])
        os.read(done[0], 1)
        os._exit(0)
    os.close(done[0])
    try:
        os.read(ready[0], 1)
        assert owner("--yes") == exits.FAILED
        assert "1 Pods of" in owner.err and "trainmaster up --detach" in owner.err
        assert owner("--yes", "--stop") == exits.FAILED, "nobody could stop it"
        assert "store" in owner.list()
    finally:
        for descriptor in (done[1], *ready):
            os.close(descriptor)
        os.waitpid(child, 0)
    assert owner("--yes") == exits.OK


def test_what_a_crash_left_aside_goes_with_the_next_purge(owner: Owner) -> None:
    aside = owner.root / removal.ASIDE
    aside.mkdir()
    (aside / "store").mkdir()
    assert owner("--yes") == exits.OK
    assert removal.ASIDE not in owner.list()


def test_a_link_goes_and_what_it_points_to_stays(owner: Owner, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "precious").touch()
    (owner.root / "pods" / "link").symlink_to(data)
    assert owner("--everything", "--yes") == exits.OK
    assert (data / "precious").exists()


def test_a_mount_below_the_home_stops_it(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"36 35 98:0 / {owner.root}/pods/x\\040y rw - ext4 /dev/sda1 rw\n40 1 0:1 / /elsewhere rw - tmpfs t rw\n"
    assert removal.list_mounts(Home(owner.root), table) == [f"{owner.root}/pods/x y"]
    monkeypatch.setattr(removal, "list_mounts", lambda home: [f"{owner.root}/pods/x"])
    assert owner("--yes") == exits.FAILED
    assert "unmount it first" in owner.err
    assert "store" in owner.list()


@pytest.mark.parametrize("name", ["nothing-here", "person"])
def test_a_folder_that_is_no_home_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "person").mkdir()
    (tmp_path / "person" / "photos").mkdir()
    err = io.StringIO()
    code = main(
        ("purge", "--everything", "--yes", "--home", str(tmp_path / name)), CommandContext({}, io.StringIO(), err)
    )
    assert code == exits.FAILED
    assert "home" in err.getvalue()
    assert (tmp_path / "person" / "photos").exists()


def test_finished_needs_a_server_and_does_not_stop_it(owner: Owner) -> None:
    assert owner("--finished", "--yes") == exits.NOT_RUNNING
    assert owner("--finished", "--stop") == exits.USAGE
    assert owner("--finished", "--everything") == exits.USAGE
