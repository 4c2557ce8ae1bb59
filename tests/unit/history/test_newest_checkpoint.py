"""The newest checkpoint of a job, in a directory that belongs to its program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster import checkpoint
from trainmaster.history.newest_checkpoint import find_newest_checkpoint

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "results" / "uid" / "checkpoints"
    path.mkdir(parents=True)
    return path


def save(path: Path, step: int | None = None) -> None:
    path.write_text("weights")
    checkpoint.commit(path, step=step)


def test_the_newest_complete_one_with_its_step_and_time(tmp_path: Path, folder: Path) -> None:
    save(folder / "a", 1)
    save(folder / "b", 2)
    (folder / "c").write_text("not committed")
    os.utime(folder / "a.complete", (10, 10))
    os.utime(folder / "b.complete", (20, 20))
    found = find_newest_checkpoint(tmp_path, "uid")
    assert found is not None and (found.name, found.step, found.saved_at) == ("b", 2, 20)


def test_a_directory_has_its_marker_inside(tmp_path: Path, folder: Path) -> None:
    (folder / "d").mkdir()
    checkpoint.commit(folder / "d", step=7)
    found = find_newest_checkpoint(tmp_path, "uid")
    assert found is not None and (found.name, found.step) == ("d", 7)


@pytest.mark.parametrize("text", ["", "[]", '{"step": "7"}', '{"step": true}', "x" * 10_000, "[" * 4000])
def test_a_marker_that_says_no_step_counts_without_one(tmp_path: Path, folder: Path, text: str) -> None:
    (folder / "a").write_text("weights")
    (folder / "a.complete").write_text(text)
    found = find_newest_checkpoint(tmp_path, "uid")
    assert found is not None and found.step is None


def test_links_and_pipes_are_not_read(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "secret").write_text('{"step": 5}')
    (folder / "a").write_text("weights")
    (folder / "a.complete").symlink_to(tmp_path / "secret")
    assert find_newest_checkpoint(tmp_path, "uid") is None
    (folder / "a.complete").unlink()
    os.mkfifo(folder / "a.complete")
    found = find_newest_checkpoint(tmp_path, "uid")
    assert found is not None and found.step is None


def test_there_may_be_none(tmp_path: Path, folder: Path) -> None:
    assert find_newest_checkpoint(tmp_path, "uid") is None
    assert find_newest_checkpoint(tmp_path, "nobody") is None
