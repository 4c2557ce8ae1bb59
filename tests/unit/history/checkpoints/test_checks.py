"""What is wrong with a checkpoint: every cut is found, and what is whole is not called damaged."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import UID, commit, get_folder
from trainmaster.history.checkpoints.model import Checkpoint
from trainmaster.history.checkpoints.opening import ReadingBudget
from trainmaster.history.checkpoints.reading import choose_resumable, read_checkpoints
from trainmaster.history.checkpoints.verifying import verify

pytestmark = pytest.mark.unit

SAVERS: dict[str, Callable[[Path], Path]] = {
    "step-2.pt": saved.save_torch,
    "step-2": saved.save_torch,
    "step-2.safetensors": saved.save_tensors,
    "shards-2": saved.save_shards,
    "checkpoint-2": lambda path: saved.save_trainer(path, 2),
    "parts-2": lambda path: saved.save_torch(saved.save_tensors(path / "a.safetensors").with_name("o.pt")).parent,
}


def read_one(archive: Path) -> Checkpoint:
    (item,) = read_checkpoints(archive, UID).items
    return item


@pytest.mark.parametrize("marked", [commit, saved.mark_by_hand], ids=["with sizes", "empty marker"])
@pytest.mark.parametrize("name", SAVERS)
def test_whichever_file_is_cut_wherever_the_one_before_is_resumed_from(
    tmp_path: Path, name: str, marked: Callable[[Path], Path]
) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_torch(folder / "step-1.pt"), at=1)
    target = marked(SAVERS[name](folder / name))
    assert choose_resumable(folder).name == name
    files = [path for path in target.rglob("*") if path.is_file()] if target.is_dir() else [target]
    cuts = 0
    for file in files:
        content = file.read_bytes()
        for size in {0, 1, 3, 4, 8, *range(9, len(content), max(1, len(content) // 40)), len(content) - 1}:
            if size >= len(content) or file.name == ".complete":
                continue
            os.truncate(file, size)
            found = choose_resumable(folder)
            assert found.name == "step-1.pt", (file.name, size)
            assert [item.name for item in found.passed_over] == [name]
            file.write_bytes(content)
            cuts += 1
        if file.name != ".complete" and (marked is commit or file.name in ("trainer_state.json", ".metadata")):
            file.unlink()
            assert choose_resumable(folder).name == "step-1.pt", f"without {file.name}"
            file.write_bytes(content)
    assert cuts > 30
    assert choose_resumable(folder).name == name


@pytest.mark.parametrize("name", SAVERS)
def test_bytes_that_differ_are_found_by_reading_everything(tmp_path: Path, name: str) -> None:
    target = saved.mark_by_hand(SAVERS[name](get_folder(tmp_path) / name))
    assert verify(read_one(tmp_path)).problems == ()
    file = max((path for path in [target, *target.rglob("*.pt"), *target.rglob("*.distcp")] if path.is_file()),
               key=lambda path: path.stat().st_size, default=None)  # fmt: skip
    if file is None or name.endswith(".safetensors"):
        return  # no checksums
    content = bytearray(file.read_bytes())
    place = max(content.rfind(b"w" * 20), content.rfind(b"1" * 20))
    content[place] ^= 1
    file.write_bytes(content)
    assert read_one(tmp_path).complete, "not seen in a list"
    (problem,) = verify(read_one(tmp_path)).problems
    assert problem.startswith(f"{file.name} has other bytes in ")


def test_digests_find_what_has_no_checksums_of_its_own(tmp_path: Path) -> None:
    target = saved.save_tensors(get_folder(tmp_path) / "a.safetensors")
    commit(target, digest=True)
    assert verify(read_one(tmp_path)).problems == ()
    assert verify(read_one(tmp_path)).digests == 1
    content = bytearray(target.read_bytes())
    content[-1] ^= 1
    target.write_bytes(content)
    assert verify(read_one(tmp_path)).problems == (
        "a.safetensors has other bytes than when it was committed: its SHA-256 differs",
    )


def test_verify_names_every_damaged_file(tmp_path: Path) -> None:
    target = commit(saved.save_trainer(get_folder(tmp_path) / "checkpoint-2", 2))
    os.truncate(target / "optimizer.pt", 9)
    (target / "model.safetensors").unlink()
    problems = verify(read_one(tmp_path)).problems
    assert [text.split(" ")[0] for text in problems[:2]] == ["model.safetensors", "optimizer.pt"]


def test_a_model_in_parts_needs_all_of_them(tmp_path: Path) -> None:
    folder = get_folder(tmp_path) / "checkpoint-5"
    saved.save_trainer(folder, 5)
    (folder / "model.safetensors").unlink()
    saved.save_tensors(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    )
    assert read_one(tmp_path).problem == "model-00002-of-00002.safetensors is missing"
    saved.save_tensors(folder / "model-00002-of-00002.safetensors")
    assert read_one(tmp_path).complete


def test_a_legacy_file_of_torch_is_left_alone(tmp_path: Path) -> None:
    commit(saved.save_file(get_folder(tmp_path) / "old" / "model.pt", b"\x80\x02\x8a\nl\xfc").parent)
    assert read_one(tmp_path).complete


def test_compressed_archives_are_read_too(tmp_path: Path) -> None:
    target = get_folder(tmp_path) / "a.pt"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"x")
        archive.writestr("a/zeros", bytes(50_000_000))
    saved.mark_by_hand(target)
    assert verify(read_one(tmp_path)).problems == ()


def test_a_list_reads_no_more_than_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = get_folder(tmp_path)
    for number in range(5):
        saved.mark_by_hand(saved.save_torch(folder / f"{number}.pt"))
        os.truncate(folder / f"{number}.pt", 50)
    monkeypatch.setattr("trainmaster.history.checkpoints.reading.ReadingBudget", lambda: ReadingBudget(files=6))
    found = read_checkpoints(tmp_path, UID)
    assert 0 < sum(not item.complete for item in found.items) < 5
    assert any("looked into" in note for note in found.notes)


@given(st.binary(max_size=400), st.sampled_from(["a.pt", "a.safetensors", "d/.metadata", "d/__0_0.distcp", "x"]))
@settings(max_examples=150, deadline=None)
def test_whatever_bytes_a_program_leaves_are_answered_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    archive = tmp_path_factory.mktemp("any")
    folder = get_folder(archive)
    saved.save_file(folder / name, content)
    for target in folder.iterdir():
        saved.mark_by_hand(target)
    for item in read_checkpoints(archive, UID).items:
        assert item.problem.isprintable()
        assert all(text.isprintable() for text in verify(item).problems)
    shutil.rmtree(archive)


def test_a_checkpoint_that_vanishes_while_it_is_read_is_a_sentence(tmp_path: Path) -> None:
    target = commit(saved.save_trainer(get_folder(tmp_path) / "checkpoint-2", 2))
    item = read_one(tmp_path)
    shutil.rmtree(target)
    assert all("is missing" in text for text in verify(item).problems)
    assert verify(item).problems
