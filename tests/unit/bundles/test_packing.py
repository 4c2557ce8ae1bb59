"""From a directory to a bundle: what is in it, what is said when it cannot be made, and what is not read twice."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from trainmaster.bundles import packing, remembering
from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.packing import Bundle, BundleLimits, pack
from trainmaster.bundles.store import BundleStore

pytestmark = pytest.mark.unit

OLD = 1_700_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "pkg" / "empty").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    (root / "pkg" / "model.py").write_text("x = 1\n")
    os.symlink("pkg/model.py", root / "model")
    return root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "bundles"


def get_tree(store: Path, bundle: Bundle) -> Path:
    found = BundleStore(store).find(bundle.digest)
    assert found is not None
    return found.tree


def list_all(tree: Path) -> list[str]:
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))


def test_a_bundle_has_the_files_their_modes_the_links_and_empty_directories(source: Path, store: Path) -> None:
    bundle = pack(source, store)
    tree = get_tree(store, bundle)
    assert list_all(tree) == ["model", "pkg", "pkg/empty", "pkg/model.py", "run.sh", "train.py"]
    assert (tree / "train.py").read_text() == "print('hello')\n"
    assert (tree / "train.py").stat().st_mode & 0o777 == 0o644
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(tree / "model") == "pkg/model.py"
    assert (bundle.files, bundle.bytes) == (3, 31)
    assert (bundle.git_commit, bundle.git_dirty) == ("", None)


def test_equal_content_has_one_digest_wherever_it_lies_and_whenever_it_was_written(
    source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "copy"
    shutil.copytree(source, other, symlinks=True)
    os.utime(other / "train.py", (OLD, OLD))
    (other / "train.py").chmod(0o600)
    first, second = pack(source, tmp_path / "a"), pack(other, tmp_path / "b")
    assert first.digest == second.digest


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda root: (root / "train.py").write_text("other"), id="another content"),
        pytest.param(lambda root: (root / "train.py").chmod(0o755), id="an executable bit"),
        pytest.param(lambda root: (root / "train.py").rename(root / "trail.py"), id="another name"),
        pytest.param(lambda root: (root / "more").mkdir(), id="one more directory"),
        pytest.param(lambda root: os.symlink("train.py", root / "again"), id="one more link"),
        pytest.param(lambda root: (root / "new").touch(), id="one more empty file"),
    ],
)
def test_every_difference_is_another_digest(source: Path, store: Path, change: Any) -> None:
    before = pack(source, store)
    change(source)
    after = pack(source, store)
    assert after.digest != before.digest
    assert not after.reused


def test_what_is_packed_stays_when_the_files_change(source: Path, store: Path) -> None:
    before = pack(source, store)
    (source / "train.py").write_text("something else\n")
    pack(source, store)
    assert (get_tree(store, before) / "train.py").read_text() == "print('hello')\n"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs believe that all files were written long ago."""
    monkeypatch.setattr(remembering, "_SLACK_NS", -(10**18))


def test_a_file_that_looks_as_before_is_not_read_again(
    source: Path, store: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pack(source, store)
    read: list[str] = []
    copy = packing._Drafting._copy

    def note(self: packing._Drafting, name: str) -> str | None:
        read.append(name)
        return copy(self, name)

    monkeypatch.setattr(packing._Drafting, "_copy", note)
    assert pack(source, store) == Bundle(**{**_fields(first), "reused": True})
    (source / "train.py").write_text("changed, and longer than before\n")
    third = pack(source, store)
    assert read == ["train.py"]
    # The others are the same files on disk.
    tree, before = get_tree(store, third), get_tree(store, first)
    assert (tree / "run.sh").samefile(before / "run.sh")
    assert not (tree / "train.py").samefile(before / "train.py")


def _fields(bundle: Bundle) -> dict[str, Any]:
    return {name: getattr(bundle, name) for name in Bundle.__slots__}


def test_a_file_written_in_the_moment_of_the_pack_is_not_trusted(source: Path, store: Path) -> None:
    """Its time stamp may not move when it is written again."""
    pack(source, store)
    memory = remembering.load(remembering.get_path(store, source))
    assert memory.known == {}


def test_a_change_of_equal_length_with_an_old_time_stamp_is_seen(source: Path, store: Path, later: None) -> None:
    status = (source / "train.py").stat()
    before = pack(source, store)
    (source / "train.py").write_text("print('HELLO')\n")
    os.utime(source / "train.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert pack(source, store).digest != before.digest


def test_a_bundle_that_was_forgotten_is_made_again_from_the_files(source: Path, store: Path, later: None) -> None:
    first = pack(source, store)
    shutil.rmtree(BundleStore(store).get_place(first.digest))
    again = pack(source, store)
    assert (again.digest, again.reused) == (first.digest, False)
    assert (get_tree(store, again) / "train.py").read_text() == "print('hello')\n"


def test_a_broken_cache_costs_time_and_nothing_else(source: Path, store: Path, later: None) -> None:
    first = pack(source, store)
    for path in (store / "cache").iterdir():
        path.write_text('{"version": 1, "files": [')
    assert pack(source, store).digest == first.digest


def test_a_file_that_changes_while_it_is_read_is_read_again(
    source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, changes = packing._copy_content, iter(["second\n", "third\n"])

    def disturb(handle: int, target: str, mark: Any) -> str:
        found = copy(handle, target, mark)
        if target.endswith("train.py") and (text := next(changes, None)):
            (source / "train.py").write_text(text)
        return found

    monkeypatch.setattr(packing, "_copy_content", disturb)
    bundle = pack(source, store)
    assert (get_tree(store, bundle) / "train.py").read_text() == "third\n"


def test_an_early_file_that_changes_while_later_ones_are_read_is_read_again(
    source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, changes = packing._copy_content, iter(["new\n"])

    def disturb(handle: int, target: str, mark: Any) -> str:
        if target.endswith("train.py") and (text := next(changes, None)):
            (source / "pkg" / "model.py").write_text(text)
        return copy(handle, target, mark)

    monkeypatch.setattr(packing, "_copy_content", disturb)
    assert (get_tree(store, pack(source, store)) / "pkg/model.py").read_text() == "new\n"


def test_a_file_that_never_keeps_still_is_named(source: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = packing._copy_content

    def disturb(handle: int, target: str, mark: Any) -> str:
        found = copy(handle, target, mark)
        if target.endswith("train.py"):
            with (source / "train.py").open("a") as file:
                file.write("more\n")
        return found

    monkeypatch.setattr(packing, "_copy_content", disturb)
    with pytest.raises(BundleError, match=r"train\.py in .* changed each time it was read: .*\.trainmasterignore"):
        pack(source, store)
    assert [path.name for path in store.iterdir() if path.name.startswith((".new", "sha256"))] == []


def test_a_file_that_goes_away_meanwhile_is_as_if_it_had_not_been(
    source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = packing._copy_content

    def disturb(handle: int, target: str, mark: Any) -> str:
        (source / "train.py").unlink(missing_ok=True)
        return copy(handle, target, mark)

    monkeypatch.setattr(packing, "_copy_content", disturb)
    bundle = pack(source, store)
    assert "train.py" not in list_all(get_tree(store, bundle))
    assert bundle.files == 2


def test_a_directory_that_goes_away_while_it_is_listed_is_as_if_it_had_been_empty(
    source: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def disturb(place: str) -> Any:
        if str(place).endswith("/pkg/"):
            shutil.rmtree(source / "pkg", ignore_errors=True)
        return scan(place)

    monkeypatch.setattr(os, "scandir", disturb)
    bundle = pack(source, store)
    monkeypatch.undo()
    assert list_all(get_tree(store, bundle)) == ["model", "pkg", "run.sh", "train.py"]


@pytest.mark.parametrize("moment", ["_copy_content", "walk"])
def test_the_removal_of_the_whole_directory_is_said_in_a_sentence(
    source: Path, store: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    work = getattr(packing, moment)

    def disturb(*args: Any) -> Any:
        found = work(*args)
        shutil.rmtree(source, ignore_errors=True)
        return found

    monkeypatch.setattr(packing, moment, disturb)
    with pytest.raises(BundleError) as caught:
        pack(source, store)
    assert str(caught.value) == f"{source} was removed while {source} was packed: try again"
    assert not BundleStore(store).list_digests()


def test_too_much_code_names_its_largest_parts_and_the_file_to_write(source: Path, store: Path) -> None:
    (source / "data").mkdir()
    (source / "data" / "big").write_bytes(b"x" * 5000)
    (source / "dump").write_bytes(b"x" * 3000)
    with pytest.raises(BundleError) as caught:
        pack(source, store, BundleLimits(bytes=4096))
    text = str(caught.value)
    assert "has 7.8 KiB, more than the limit of 4.0 KiB (--code-limit)" in text
    assert "The largest parts are data/ (4.9 KiB), dump (2.9 KiB)" in text
    assert f"echo '/data/' >> {source}/.trainmasterignore" in text
    (source / ".trainmasterignore").write_text("/data/\n")
    assert pack(source, store, BundleLimits(bytes=4096)).files == 5


def test_too_many_files_are_told_as_such(source: Path, store: Path) -> None:
    for number in range(20):
        (source / "pkg" / f"{number}.txt").touch()
    with pytest.raises(BundleError, match="files, more than the limit of 3"):
        pack(source, store, BundleLimits(files=3))


def test_a_link_inside_becomes_relative_and_one_that_leads_out_is_refused_by_name(source: Path, store: Path) -> None:
    os.symlink(source / "pkg" / "model.py", source / "pkg" / "absolute")
    os.symlink("nowhere", source / "dangling")
    tree = get_tree(store, pack(source, store))
    assert os.readlink(tree / "pkg/absolute") == "model.py"
    assert os.readlink(tree / "dangling") == "nowhere"
    os.symlink("/etc/passwd", source / "outside")
    os.symlink("../../up", source / "pkg" / "up")
    with pytest.raises(
        BundleError, match=r"lead out of it: outside -> /etc/passwd, pkg/up -> \.\./\.\./up\. .*--volume"
    ):
        pack(source, store)
    (source / ".trainmasterignore").write_text("outside\n/pkg/up\n")
    pack(source, store)


def test_odd_names_are_kept(source: Path, store: Path) -> None:
    names = [b"new\nline", b"not-\xff-utf8", b" space ", b"-dash", "snowman \N{SNOWMAN}".encode()]
    for name in names:
        (source / os.fsdecode(name)).write_text("x")
    bundle = pack(source, store)
    assert {os.fsencode(name) for name in os.listdir(get_tree(store, bundle))} >= set(names)
    assert pack(source, store).digest == bundle.digest


def test_sockets_and_pipes_are_left_out(source: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(source / "pipe")
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        names = list_all(get_tree(store, pack(source, store)))
    assert "pipe" not in names
    assert "sock" not in names


def test_the_home_itself_is_never_packed(source: Path) -> None:
    home = source / "deep" / "home"
    (home / "pki").mkdir(parents=True)
    (home / "pki" / "key").write_text("secret")
    bundle = pack(source, home / "bundles")
    assert bundle.files == 3
    assert "deep/home" not in list_all(get_tree(home / "bundles", bundle))
    assert pack(source, home / "bundles").digest == bundle.digest
    with pytest.raises(BundleError, match="is the home of trainmaster itself"):
        pack(home, home / "bundles")


def test_what_is_no_directory_is_said_so(source: Path, store: Path) -> None:
    for path in (source / "train.py", source / "nowhere"):
        with pytest.raises(BundleError, match="is not a directory: name the directory that holds the code"):
            pack(path, store)


def test_a_full_disk_leaves_nothing_half(source: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, target: str, mark: Any) -> str:
        raise OSError(28, "No space left on device", target)

    monkeypatch.setattr(packing, "_copy_content", refuse)
    with pytest.raises(BundleError, match=r"cannot be packed into .*No space left on device"):
        pack(source, store)
    assert sorted(path.name for path in store.iterdir()) == ["cache", "lock"]
