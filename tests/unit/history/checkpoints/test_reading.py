"""Which checkpoints a job has, by the files that are there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import UID, commit, get_folder, get_outputs
from trainmaster.history.checkpoints import reading, scanning
from trainmaster.history.checkpoints.model import Checkpoint
from trainmaster.history.checkpoints.notes import write_pins
from trainmaster.history.checkpoints.reading import choose_resumable, read_checkpoints

pytestmark = pytest.mark.unit


def read(archive: Path) -> dict[str, Checkpoint]:
    return {item.name: item for item in read_checkpoints(archive, UID).items}


def test_a_job_without_checkpoints_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) == {}
    get_folder(tmp_path)
    assert read(tmp_path) == {}


def test_every_format_is_told_by_its_files(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_torch(folder / "a.pt"), step=1)
    commit(saved.save_tensors(folder / "b.safetensors"), step=2)
    commit(saved.save_shards(folder / "c"), step=3)
    commit(saved.save_trainer(folder / "checkpoint-4", 4))
    commit(saved.save_file(folder / "e.bin"), step=5)
    commit(saved.save_file(folder / "f" / "deep" / "weights").parent.parent, step=6)
    found = read(tmp_path)
    assert {name: (item.format, item.step, item.problem) for name, item in found.items()} == {
        "a.pt": ("torch", 1, ""),
        "b.safetensors": ("safetensors", 2, ""),
        "c": ("torch-distributed", 3, ""),
        "checkpoint-4": ("hugging-face", 4, ""),
        "e.bin": ("file", 5, ""),
        "f": ("directory", 6, ""),
    }
    assert all(item.is_resumable for item in found.values())
    assert [file.path for file in found["f"].source.files] == ["deep/weights"]
    assert found["e.bin"].bytes == 7


def test_what_was_not_committed_is_listed_with_the_reason(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    saved.save_file(folder / "step-1" / "rank-0")
    saved.save_file(folder / "step-2.pt")
    saved.save_file(folder / "step-3.partial")
    saved.save_file(folder / ".hidden")
    saved.save_trainer(folder / "checkpoint-5", 5)
    found = read(tmp_path)
    assert {name: (item.complete, item.committed) for name, item in found.items()} == {
        "step-1": (False, False),
        "step-2.pt": (False, False),
        "step-3.partial": (False, False),
        "checkpoint-5": (True, False),
    }
    assert "no marker" in found["step-1"].problem
    assert "being written" in found["step-3.partial"].problem
    assert not found["checkpoint-5"].is_resumable


def test_a_directory_that_is_being_written_is_one_checkpoint_whatever_is_inside(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    saved.save_torch(folder / "step-1" / "model.pt")
    saved.save_shards(folder / "step-1" / "optimizer")
    assert {name: item.complete for name, item in read(tmp_path).items()} == {"step-1": False}


def test_outputs_have_only_what_a_format_tells(tmp_path: Path) -> None:
    outputs = get_outputs(tmp_path)
    saved.save_trainer(outputs / "run" / "checkpoint-30", 30)
    saved.save_torch(outputs / "epoch-2.pt")
    saved.save_shards(outputs / "dist" / "step_7")
    saved.save_tensors(outputs / "final" / "model.safetensors")
    saved.save_file(outputs / "notes.pt", b"no archive")
    saved.save_file(outputs / "loss.csv")
    saved.save_tensors(outputs / ".cache" / "hub" / "model.safetensors")
    found = read(tmp_path)
    assert {name: (item.format, item.step) for name, item in found.items()} == {
        "outputs/run/checkpoint-30": ("hugging-face", 30),
        "outputs/epoch-2.pt": ("torch", None),
        "outputs/dist/step_7": ("torch-distributed", 7),
        "outputs/final/model.safetensors": ("safetensors", None),
    }
    assert all(item.complete and not item.is_resumable for item in found.values())


def test_what_rank_0_left_in_its_working_directory_counts_too(tmp_path: Path) -> None:
    place = tmp_path / "results" / UID / "workdirs" / "pod-1"
    saved.save_trainer(place / "files" / "out" / "checkpoint-2", 2)
    (place / "about.json").write_text(json.dumps({"pod": "p", "attempt": 0}))
    assert list(read(tmp_path)) == ["outputs/workdir/out/checkpoint-2"]


def test_the_step_is_that_of_the_marker_else_of_the_trainer_else_of_the_name(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_file(folder / "step-1"), step=100)
    commit(saved.save_trainer(folder / "checkpoint-2", 200))
    for name in ("step-000300.pt", "epoch=3-step=400.ckpt", "500", "epoch-6", "model-00001-of-00007", "final"):
        commit(saved.save_file(folder / name))
    assert {item.step for item in read(tmp_path).values()} == {100, 200, 300, 400, 500, None}


def test_the_attempt_is_that_of_the_marker_else_the_one_that_ran_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = get_folder(tmp_path)
    monkeypatch.setenv("TRAINMASTER_ATTEMPT", "7")
    commit(saved.save_file(folder / "a"), at=1_500)
    for name, at in (("b", 500), ("c", 1_500), ("d", 2_500)):
        saved.mark_by_hand(saved.save_file(folder / name))
        saved.set_time(folder / name, at)
    saved.note_attempt(tmp_path, 0, 1_000)
    saved.note_attempt(tmp_path, 1, 2_000, "c")
    assert {name: item.attempt for name, item in read(tmp_path).items()} == {"a": 7, "b": 0, "c": 0, "d": 1}


def test_the_newest_is_first(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    for name, at in (("a", 2_000), ("b", 3_000), ("c", 1_000)):
        commit(saved.save_file(folder / name), at=at)
    assert list(read(tmp_path)) == ["b", "a", "c"]


def test_pins_are_shown(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_file(folder / "a"))
    commit(saved.save_file(folder / "b"))
    write_pins(folder.parent, ["a"])
    assert {name: item.pinned for name, item in read(tmp_path).items()} == {"a": True, "b": False}
    (folder.parent / "pins.json").write_text("{")
    assert not any(item.pinned for item in read(tmp_path).values())


def test_links_pipes_and_names_that_are_no_text_stop_nobody(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    secret = commit(saved.save_file(get_folder(tmp_path, "other") / "secret"), step=9)
    (folder / "link").symlink_to(secret)
    (folder / "link.complete").symlink_to(f"{secret}.complete")
    (folder / "linked").symlink_to(secret.parent)
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.complete")
    inner = saved.save_file(folder / "step-1" / "weights").parent
    (inner / "latest").symlink_to("/etc/passwd")
    os.mkfifo(inner / "model.safetensors")
    commit(inner)
    for name in (b"bad\xff", b"two\nlines", b"\x1b[31mred"):
        commit(saved.save_file(folder / os.fsdecode(name)))
    found = read(tmp_path)
    assert set(found) == {"step-1", "bad\\xff", "two\\nlines", "\\x1b[31mred"}
    assert [file.path for file in found["step-1"].source.files] == ["weights"]
    assert sorted(found["step-1"].source.others) == ["latest", "model.safetensors"]
    assert choose_resumable(folder).name == "step-1"


def test_a_root_that_became_a_link_is_empty(tmp_path: Path) -> None:
    commit(saved.save_file(get_folder(tmp_path, "other") / "secret"))
    (tmp_path / "results" / UID).mkdir()
    (tmp_path / "results" / UID / "checkpoints").symlink_to("../other/checkpoints")
    assert read(tmp_path) == {}


def test_odd_times_and_markers_are_read_as_far_as_they_say_something(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    for name, content in (
        ("a", "[]"), ("b", '{"step": -1, "attempt": true, "files": 7}'), ("c", '{"step": 1e99}'), ("d", "[" * 100_000),
        ("e", '{"files": {"": {"bytes": "x"}}}'), ("f", '{"files": {"../a": {"bytes": 1}}}'),
    ):  # fmt: skip
        saved.save_file(folder / name)
        (folder / f"{name}.complete").write_text(content)
    os.utime(folder / "a.complete", ns=(2**62, 2**62))
    os.utime(folder / "b.complete", (-5e9, -5e9))
    found = read(tmp_path)
    assert {name for name, item in found.items() if item.problem} == {"f"}
    assert all(item.step is None and item.modified >= 0 for item in found.values())
    with (folder / "g.complete").open("w") as file:
        file.truncate(1 << 40)
    saved.save_file(folder / "g")
    assert read(tmp_path)["g"].complete


def test_more_files_than_are_looked_at_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = get_folder(tmp_path)
    for number in range(9):
        commit(saved.save_file(folder / f"step-{number}"))
    monkeypatch.setattr(reading, "MOST_LISTED", 3)
    assert len(read_checkpoints(tmp_path, UID).items) == 3
    assert "is not shown" in read_checkpoints(tmp_path, UID).notes[0]
    monkeypatch.setattr(scanning.scan, "__defaults__", (4,))
    assert any("more files than are looked at" in note for note in read_checkpoints(tmp_path, UID).notes)


def test_names_that_look_like_outputs_are_told_apart(tmp_path: Path) -> None:
    commit(saved.save_trainer(get_folder(tmp_path) / "outputs" / "checkpoint-1", 1))
    saved.save_trainer(get_outputs(tmp_path) / "checkpoint-1", 1)
    assert set(read(tmp_path)) == {"checkpoints/outputs/checkpoint-1", "outputs/checkpoint-1"}


def test_the_newest_whole_one_is_resumed_from_and_damaged_ones_are_passed_over(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    assert choose_resumable(folder).name == ""
    for number in (1, 2, 3):
        commit(saved.save_torch(folder / f"step-{number}.pt"), step=number, at=number)
    saved.save_torch(folder / "step-9.pt")
    os.truncate(folder / "step-3.pt", 40)
    (folder / "step-2.pt").unlink()
    found = choose_resumable(folder)
    assert found.name == "step-1.pt"
    assert [(item.name, item.problem) for item in found.passed_over] == [
        ("step-3.pt", "step-3.pt has 40 bytes, and its marker says " + str((folder / "step-1.pt").stat().st_size))
    ]
    assert read(tmp_path)["step-3.pt"].problem == found.passed_over[0].problem
