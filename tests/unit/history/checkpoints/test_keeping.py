"""Which checkpoints a policy keeps, and how the others are removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import UID, commit, get_folder, get_outputs
from trainmaster.history.checkpoints.choosing import NoCheckpoint, choose
from trainmaster.history.checkpoints.copying import copy
from trainmaster.history.checkpoints.keeping import decide_removals, explain_kept, remove, sweep
from trainmaster.history.checkpoints.model import Checkpoint, CheckpointSource, Policy
from trainmaster.history.checkpoints.reading import choose_resumable, read_checkpoints
from trainmaster.kit import failpoints
from trainmaster.kit.failpoints import Failpoint

pytestmark = pytest.mark.unit


def make(step: int, *, complete: bool = True, pinned: bool = False, committed: bool = True) -> Checkpoint:
    name = f"step-{step}"
    source = CheckpointSource(Path("/none"), name, True, ())
    problem = "" if complete else "it is cut short"
    return Checkpoint(name, "checkpoints", "torch", source, step, 0, committed, problem, float(step), pinned=pinned)


def keep(items: list[Checkpoint], policy: Policy, resumed: str = "", *, incomplete: bool = False) -> list[int | None]:
    """Steps that stay."""
    explained = explain_kept(items, policy, resumed)
    gone = {item.name for item in decide_removals(explained, policy, incomplete=incomplete)}
    return [item.step for item in items if item.name not in gone]


ALL = [make(step) for step in range(10, 0, -1)]


def test_the_last_and_every_so_many_stay() -> None:
    assert keep(ALL, Policy()) == [*range(10, 0, -1)]
    assert keep(ALL, Policy(last=3)) == [10, 9, 8]
    assert keep(ALL, Policy(last=2, every=4)) == [10, 9, 8, 4]
    assert keep(ALL, Policy(every=5)) == [10, 5]


def test_pinned_ones_and_the_one_that_was_resumed_from_stay() -> None:
    items = [make(step, pinned=step == 2) for step in range(5, 0, -1)]
    assert keep(items, Policy(last=1), "step-3") == [5, 3, 2]
    reasons = {item.step: item.kept for item in explain_kept(items, Policy(last=1), "step-3")}
    assert reasons == {5: ("newest", "last"), 4: (), 3: ("resumed",), 2: ("pinned",), 1: ()}


def test_damaged_ones_do_not_count_and_stay_unless_asked() -> None:
    items = [make(5, complete=False), make(4), make(3, complete=False), make(2)]
    assert keep(items, Policy(last=1)) == [5, 4, 3]
    assert keep(items, Policy(last=1), incomplete=True) == [5, 4], "the newest may be being written"


def test_the_newest_that_can_be_resumed_from_stays_behind_a_newer_one_without_marker() -> None:
    assert keep([make(3, committed=False), make(2), make(1)], Policy(last=1)) == [3, 2]


def test_outputs_are_never_removed(tmp_path: Path) -> None:
    for step in (1, 2):
        saved.save_trainer(get_outputs(tmp_path) / f"checkpoint-{step}", step)
    assert len(keep(list(read_checkpoints(tmp_path, UID).items), Policy(last=1), incomplete=True)) == 2


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12),
    st.integers(0, 4), st.integers(0, 4), st.booleans(),
)  # fmt: skip
def test_a_policy_never_removes_what_is_needed(
    kinds: list[tuple[bool, bool, bool]], last: int, every: int, incomplete: bool
) -> None:
    items = [make(len(kinds) - n, complete=c, pinned=p, committed=m) for n, (c, p, m) in enumerate(kinds)]
    stay = keep(items, Policy(last, every), "step-1", incomplete=incomplete)
    complete = [item.step for item in items if item.complete]
    resumable = [item.step for item in items if item.is_resumable]
    assert {*complete[:1], *resumable[:1], *[item.step for item in items if item.pinned]} <= {*stay}
    assert 1 in stay or not items
    assert {*complete[:last]} <= {*stay}
    newest = max((step for step in complete if step), default=0)
    assert {item.step for item in items if not item.complete and (item.step or 0) > newest} <= {*stay}


def test_removed_ones_are_gone_and_the_rest_is_untouched(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_file(folder / "a"))
    commit(saved.save_trainer(folder / "checkpoint-2", 2))
    commit(saved.save_trainer(folder / "runs" / "checkpoint-3", 3))
    (folder / "checkpoint-2" / "out").symlink_to(tmp_path)
    for item in read_checkpoints(tmp_path, UID).items:
        assert remove(item)
        assert remove(item), "again"
    assert sorted(path.name for path in folder.rglob("*")) == ["runs"]


def interrupt() -> None:
    raise Failpoint


@pytest.mark.parametrize("place", ["checkpoints.unmarked", "checkpoints.renamed"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_interrupted_removal_leaves_no_half_checkpoint(tmp_path: Path, place: str, kind: str) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_torch(folder / "step-1.pt"), at=1)
    target = folder / "step-2"
    commit(saved.save_torch(target if kind == "file" else target / "model.pt") if kind == "file" else
           saved.save_torch(target / "model.pt").parent, at=2)  # fmt: skip
    item = choose(read_checkpoints(tmp_path, UID).items, "step-2")
    with failpoints.calling(place, interrupt):
        try:
            remove(item)
            interrupted = False
        except Failpoint:
            interrupted = True
    assert interrupted or kind == "directory"
    assert choose_resumable(folder).name == "step-1.pt"
    sweep(folder)
    assert not any(path.name.startswith(".trainmaster-removed-") for path in folder.iterdir())


def test_a_directory_that_became_a_link_is_not_removed_through_it(tmp_path: Path) -> None:
    folder = get_folder(tmp_path)
    commit(saved.save_trainer(folder / "runs" / "checkpoint-3", 3))
    (item,) = read_checkpoints(tmp_path, UID).items
    other = saved.save_trainer(tmp_path / "elsewhere" / "checkpoint-3", 3)
    os.rename(folder / "runs", folder / "moved")
    (folder / "runs").symlink_to(other.parent)
    assert not remove(item)
    assert (other / "model.safetensors").exists()


def test_one_is_chosen_by_name_by_step_or_as_the_newest() -> None:
    items = [make(3, complete=False), make(2), make(1)]
    assert choose(items, "").step == 2
    assert choose(items, "@3").name == "step-3"
    assert choose(items, "step-1").step == 1
    for wanted in ("@4", "@x", "@", "step-9", "@99999999999999999999"):
        with pytest.raises(NoCheckpoint):
            choose(items, wanted)
    with pytest.raises(NoCheckpoint, match="no complete checkpoint"):
        choose([make(1, complete=False)], "")


def test_a_copy_is_the_same_without_links(tmp_path: Path) -> None:
    source = saved.save_trainer(get_folder(tmp_path) / "checkpoint-2", 2)
    saved.save_file(source / "deep" / "er" / "x")
    (source / "link").symlink_to("/etc/passwd")
    commit(source)
    (item,) = read_checkpoints(tmp_path, UID).items
    target = tmp_path / "copy"
    copy(item.source, target)
    names = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert names == {"model.safetensors", "optimizer.pt", "trainer_state.json", "deep/er/x"}
    assert (target / "deep/er/x").read_bytes() == (source / "deep/er/x").read_bytes()
    with pytest.raises(FileExistsError):
        copy(item.source, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "results"]


def test_a_copy_of_what_vanishes_leaves_nothing(tmp_path: Path) -> None:
    source = commit(saved.save_trainer(get_folder(tmp_path) / "checkpoint-2", 2))
    (item,) = read_checkpoints(tmp_path, UID).items
    (source / "optimizer.pt").unlink()
    (source / "optimizer.pt").symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        copy(item.source, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]
