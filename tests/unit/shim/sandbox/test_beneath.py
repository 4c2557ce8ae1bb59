"""Paths in hostile directories, as the kernel resolves them and as we do where it cannot."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.shim.sandbox import beneath, linux
from trainmaster.shim.sandbox.beneath import MakeOptions, PathEscapes

pytestmark = pytest.mark.unit


@pytest.fixture(params=["kernel", "walk"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A volume with a neighbour that must not be reached."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    volume = tmp_path / "volume"
    (volume / "a" / "b").mkdir(parents=True)
    (volume / "a" / "file").write_text("own")
    if request.param == "walk":

        def refuse(directory: int, path: str, flags: int, resolve: int) -> int:
            raise OSError(errno.ENOSYS, "no openat2")

        monkeypatch.setattr(linux, "openat2", refuse)
    before = sorted(os.listdir("/proc/self/fd"))
    handle = beneath.open_directory(str(volume))
    yield handle
    os.close(handle)
    assert sorted(os.listdir("/proc/self/fd")) == before, "descriptors are left"


def look(handle: int) -> str:
    try:
        return os.path.realpath(beneath.get_path(handle))
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("link", "path", "found"),
    [
        ("", "a/b", "a/b"),
        ("", "a/./b/", "a/b"),
        ("", "a/file", "a/file"),
        ("a", "link/b", "a/b"),
        ("a/b/../file", "link", "a/file"),
        ("a/b", "link/..", "a"),
    ],
)
def test_links_that_stay_in_the_volume_are_followed(
    root: int, tmp_path: Path, link: str, path: str, found: str
) -> None:
    if link:
        (tmp_path / "volume" / "link").symlink_to(link)
    assert look(beneath.open_beneath(root, path)) == str(tmp_path / "volume" / found)


@pytest.mark.parametrize("link", ["../secret", "a/../../secret", "/etc", "/", "/proc/self/root", "a/../.."])
@pytest.mark.parametrize("path", ["link", "link/key", "a/../link"])
def test_links_that_lead_out_are_refused(root: int, tmp_path: Path, link: str, path: str) -> None:
    (tmp_path / "volume" / "link").symlink_to(link)
    with pytest.raises(PathEscapes):
        beneath.open_beneath(root, path)
    with pytest.raises(PathEscapes):
        beneath.make_beneath(root, f"{path}/new", MakeOptions())
    assert sorted(os.listdir(tmp_path / "secret")) == ["key"]


@pytest.mark.parametrize("path", ["..", "/etc", "a/../../secret"])
def test_a_path_itself_cannot_lead_out(root: int, path: str) -> None:
    with pytest.raises(PathEscapes):
        beneath.open_beneath(root, path)


def test_a_circle_of_links_ends(root: int, tmp_path: Path) -> None:
    (tmp_path / "volume" / "x").symlink_to("y")
    (tmp_path / "volume" / "y").symlink_to("x")
    for call in (beneath.open_beneath, beneath.open_inside):
        with pytest.raises(OSError, match="link") as caught:
            call(root, "x")
        assert caught.value.errno == errno.ELOOP


def test_what_is_missing_is_made_with_the_given_mode(root: int, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        (tmp_path / "volume" / "link").symlink_to("a")
        made = look(beneath.make_beneath(root, "link/x/y", MakeOptions(0o777)))
        file = look(beneath.make_inside(root, "/a/z/file", MakeOptions(0o755, directory=False)))
    finally:
        os.umask(before)
    assert made == str(tmp_path / "volume" / "a" / "x" / "y")
    assert Path(made).stat().st_mode & 0o777 == 0o777
    assert Path(made).parent.stat().st_mode & 0o777 == 0o777
    assert Path(file).is_file()
    assert Path(file).parent.is_dir()


def test_inside_a_root_absolute_links_and_dots_stay_there(root: int, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "link").symlink_to("/a/b")
    (volume / "up").symlink_to("../../../../a")
    assert look(beneath.open_inside(root, "/link")) == str(volume / "a" / "b")
    assert look(beneath.open_inside(root, "/up/file")) == str(volume / "a" / "file")
    assert look(beneath.open_inside(root, "/../..")) == str(volume)
    (volume / "out").symlink_to("/etc/new")
    assert look(beneath.make_inside(root, "/out/x", MakeOptions())) == str(volume / "etc" / "new" / "x")


def test_a_directory_is_a_file_for_nobody(root: int) -> None:
    with pytest.raises(NotADirectoryError):
        beneath.open_beneath(root, "a/file/x")
    with pytest.raises(NotADirectoryError):
        beneath.make_beneath(root, "a/file/x", MakeOptions())


def test_a_path_of_too_many_directories_is_refused(root: int) -> None:
    with pytest.raises(OSError, match=r"directories|too long"):
        beneath.make_beneath(root, "d/" * 300, MakeOptions())


def test_names_are_bytes(root: int, tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\nb\xff")
    assert look(beneath.make_beneath(root, f"{odd}/c", MakeOptions())) == str(tmp_path / "volume" / odd / "c")


def test_the_links_of_proc_are_not_followed() -> None:
    handle = beneath.open_directory("/")
    try:
        with pytest.raises(OSError, match="link"):
            beneath.open_inside(handle, "/proc/self/root")
    finally:
        os.close(handle)


def exchange_for_ever(one: Path, other: Path, stop: int) -> None:
    libc = ctypes.CDLL(None)
    while libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0:
        try:
            if os.read(stop, 1) == b"":
                return
        except BlockingIOError:
            continue


def test_a_loop_of_exchanges_never_leads_out(root: int, tmp_path: Path) -> None:
    """Between any two calls of ours, what was a directory may be a link."""
    volume = tmp_path / "volume"
    (volume / "swap").mkdir()
    (volume / "link").symlink_to("../secret")
    stop, started = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(started)
        os.set_blocking(stop, False)
        try:
            exchange_for_ever(volume / "swap", volume / "link", stop)
        finally:
            os._exit(0)
    os.close(stop)
    outcomes: set[str] = set()
    try:
        for number in range(300_000):
            if len(outcomes) == 2 and number > 2000:
                break
            try:
                handle = beneath.make_beneath(root, f"swap/d{number % 7}", MakeOptions())
            except OSError as error:
                outcomes.add(type(error).__name__)
                continue
            outcomes.add("made")
            os.close(handle)
    finally:
        os.close(started)
        os.waitpid(child, 0)
    assert sorted(os.listdir(tmp_path / "secret")) == ["key"]
    assert outcomes == {"made", "PathEscapes"}, "the test did not meet the race"
