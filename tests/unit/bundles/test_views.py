"""A Pod's own copy of a bundle, and what a program added to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.bundles.packing import pack
from trainmaster.bundles.store import BundleStore
from trainmaster.bundles.views import CopyOwner, copy_tree, is_inside
from trainmaster.node.disk.outputs import list_new

pytestmark = pytest.mark.unit


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "pkg").mkdir(parents=True)
    (source / "train.py").write_text("train\n")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "pkg" / "m.py").write_text("m\n")
    os.symlink("pkg/m.py", source / "link")
    found = BundleStore(tmp_path / "bundles").find(pack(source, tmp_path / "bundles").digest)
    assert found is not None
    return found.tree


def list_names(view: Path, tree: Path) -> list[str]:
    return sorted(entry.path for entry in list_new(view, tree))


def test_a_fresh_copy_has_everything_and_nothing_new(tree: Path, tmp_path: Path) -> None:
    copy_tree(tree, tmp_path / "view")
    assert (tmp_path / "view/run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(tmp_path / "view/link") == "pkg/m.py"
    assert list_names(tmp_path / "view", tree) == []


def test_writing_into_a_copy_leaves_the_bundle_as_it_is(tree: Path, tmp_path: Path) -> None:
    copy_tree(tree, tmp_path / "view")
    (tmp_path / "view/train.py").write_text("other\n")
    assert (tree / "train.py").read_text() == "train\n"
    copy_tree(tree, tmp_path / "view")
    assert (tmp_path / "view/train.py").read_text() == "other\n"


def test_a_copy_that_a_crash_cut_short_is_made_again(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "view.partial/pkg").mkdir(parents=True)
    (tmp_path / "view.partial/train.py").write_text("tr")
    copy_tree(tree, tmp_path / "view")
    assert list_names(tmp_path / "view", tree) == []
    assert not (tmp_path / "view.partial").exists()


def test_new_and_changed_files_are_found_and_caches_are_not(tree: Path, tmp_path: Path) -> None:
    view = tmp_path / "view"
    copy_tree(tree, view)
    for path in ("out/model.bin", "pkg/__pycache__/m.pyc", ".cache/hub", ".git/x", ".hidden"):
        (view / path).parent.mkdir(parents=True, exist_ok=True)
        (view / path).write_text("x")
    (view / "pkg/m.py").write_text("changed\n")
    os.mkfifo(view / "pipe")
    os.symlink("out", view / "latest")
    os.symlink("/etc/passwd", view / "stolen")
    os.symlink("../../x", view / "out/up")
    assert list_names(view, tree) == [".hidden", "latest", "out/model.bin", "pkg/m.py"]


def test_the_upper_layer_of_an_overlay_is_looked_at_in_the_same_way(tree: Path, tmp_path: Path) -> None:
    """It holds nothing but what was written; a touched file that is as before is not new."""
    upper = tmp_path / "upper"
    (upper / "pkg").mkdir(parents=True)
    (upper / "pkg/m.py").write_text("m\n")
    os.utime(upper / "pkg/m.py", ns=(0, (tree / "pkg/m.py").stat().st_mtime_ns))
    (upper / "loss.csv").write_text("1\n")
    assert list_names(upper, tree) == ["loss.csv"]


def test_everybody_may_write_where_containers_run_as_different_users(tree: Path, tmp_path: Path) -> None:
    copy_tree(tree, tmp_path / "view", CopyOwner(everybody=True))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "view").iterdir()}
    assert modes == {"train.py": 0o666, "run.sh": 0o777, "pkg": 0o777, "link": 0o666}


@pytest.mark.parametrize(
    ("path", "target", "want"),
    [
        ("a", "b", True),
        ("d/a", "../b", True),
        ("a", "../b", False),
        ("d/a", "../../b", False),
        ("a", "/b", False),
        ("a", "x/x/../../b", False),
        ("a", "b/..", False),
        ("d/e/a", "../../b/c", True),
    ],
)
def test_links_that_lead_out_are_known(path: str, target: str, want: bool) -> None:
    assert is_inside(path, target) is want
