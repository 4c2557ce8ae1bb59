"""Trees that a program made to be hard to walk and to remove."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deep import deep_tree
from trainmaster.shim import trees
from trainmaster.shim.trees import TreeWalk, remove_tree

pytestmark = pytest.mark.unit


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "deep"
    root.mkdir()
    with deep_tree(root, 3 * sys.getrecursionlimit()):
        yield root


def count_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_walk_goes_to_the_end_of_any_depth_with_few_descriptors(deep: Path) -> None:
    before, most, found = count_open(), 0, 0
    walk = TreeWalk(str(deep))
    for entry in walk:
        found += 1
        if entry.name.endswith("00"):
            most = max(most, count_open())
    assert (found, walk.whole) == (6 * sys.getrecursionlimit(), True)
    assert before < most < before + 50
    assert count_open() == before


def test_a_tree_of_any_depth_is_removed(deep: Path) -> None:
    before = count_open()
    assert remove_tree(deep)
    assert not deep.exists()
    assert count_open() == before


def test_a_walk_follows_no_link_and_shows_every_name(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    os.symlink(outside, root / "link")
    os.mkfifo(root / "a" / "pipe")
    odd = os.fsdecode(b"a\nb\xff")
    (root / odd).write_bytes(b"")
    walk = TreeWalk(str(root))
    assert sorted(entry.path for entry in walk) == sorted(["a", "a/pipe", "link", odd])
    assert walk.whole
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        TreeWalk(str(root / "link"))


def test_a_directory_that_becomes_a_link_during_the_walk_is_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "shadow").write_text("secret")
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "own").write_text("")
    found = []
    for entry in TreeWalk(str(root)):
        found.append(entry.path)
        if entry.path == "a":
            (root / "a").rename(root / "b")
            os.symlink(outside, root / "a")
    assert "a/shadow" not in found


def test_a_directory_that_is_moved_away_ends_the_walk_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_MOST_OPEN", 1)
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "z").mkdir()
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("")
    walk = TreeWalk(str(root))
    found = []
    for entry in walk:
        found.append(entry.path)
        if entry.name == "c":
            (root / "a" / "b").rename(elsewhere / "b")
    assert not walk.whole
    assert not any("secret" in path for path in found)


def test_what_a_directory_holds_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c" / "d").mkdir(parents=True)
    walk = TreeWalk(str(tmp_path))
    found = []
    for entry in walk:
        found.append(entry.path)
        if entry.name == "a":
            walk.skip()
    assert sorted(found) == ["a", "c", "c/d"]


def test_a_removal_touches_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    os.symlink(outside, root / "a" / "link")
    os.symlink(outside, root / "link")
    os.link(outside / "kept", root / "a" / "hard")
    os.mkfifo(root / "a" / "b" / "pipe")
    (root / "a" / ".going-0").mkdir()
    (root / ".going-0").write_text("in the way")
    (root / os.fsdecode(b"\xff\n")).mkdir()
    assert remove_tree(root)
    assert not root.exists()
    assert (outside / "kept").exists()
    os.symlink(outside, root)
    assert not remove_tree(root), "a link is not removed, and nothing behind it"
    assert (outside / "kept").exists()
    assert remove_tree(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user")
def test_an_ordinary_user_removes_what_its_pods_have_closed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "b" / "c" / "file").write_text("")
    for path in (root, root / "a", root / "a" / "b", root / "a" / "b" / "c"):
        os.chown(path, 61234, 61234)
        path.chmod(0)
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_mode & 0o777 == 0o700:
            folder.chmod(0o711)
    child = os.fork()
    if child == 0:
        os.setresuid(61234, 61234, 61234)
        os._exit(0 if remove_tree(root) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not root.exists()


def test_more_directories_than_are_held_at_once_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_AT_ONCE", 3)
    root = tmp_path / "root"
    for number in range(20):
        (root / f"d{number}" / "e" / "f").mkdir(parents=True)
        (root / f"d{number}" / "e" / "g").write_text("")
    assert remove_tree(root)
    assert not root.exists()
