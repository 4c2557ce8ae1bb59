"""Policies of jobs are applied while they run, and once more when they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import UID, commit, get_folder
from tests.unit.history.test_archive import make_trainjob
from trainmaster.api.labels import KEEP_CHECKPOINTS, KEEP_CHECKPOINTS_EVERY
from trainmaster.history.checkpoints import upkeep as module
from trainmaster.history.checkpoints.model import Policy
from trainmaster.history.checkpoints.notes import write_pins
from trainmaster.history.checkpoints.reading import read_checkpoints
from trainmaster.history.checkpoints.upkeep import SECONDS, Upkeep
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.scopes import Scope
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

Scene = Callable[[Upkeep, VirtualClock], Awaitable[None]]


def make_job(notes: dict[str, str], *, finished: bool = False) -> TrainingJob:
    job = make_trainjob(UID)
    job["metadata"]["annotations"] = {
        {"last": KEEP_CHECKPOINTS, "every": KEEP_CHECKPOINTS_EVERY}[key]: value for key, value in notes.items()
    }
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]} if finished else {}
    return read_training_job(job)


def save(archive: Path, *steps: int) -> None:
    for step in steps:
        commit(saved.save_torch(get_folder(archive) / f"step-{step}.pt"), step=step, at=step)


def list_steps(archive: Path) -> list[int | None]:
    return [item.step for item in read_checkpoints(archive, UID).items]


def play(archive: Path, scene: Scene) -> None:
    async def main() -> None:
        clock = VirtualClock()
        upkeep = Upkeep(archive, clock)
        async with Scope("test") as scope:
            task = scope.spawn(upkeep.run(), name="upkeep")
            await scene(upkeep, clock)
            task.cancel()

    run_virtual(main())


def test_old_ones_go_while_the_job_runs(tmp_path: Path) -> None:
    async def scene(upkeep: Upkeep, clock: VirtualClock) -> None:
        save(tmp_path, 1, 2, 3, 4, 5)
        saved.note_attempt(tmp_path, 0, 0, "step-1.pt")
        write_pins(get_folder(tmp_path).parent, ["step-2.pt"])
        upkeep.see(make_job({"last": "2"}))
        await clock.sleep(SECONDS * 1.5)
        assert list_steps(tmp_path) == [5, 4, 2, 1]
        save(tmp_path, 6)
        await clock.sleep(SECONDS)
        assert list_steps(tmp_path) == [6, 5, 2, 1]
        upkeep.see(make_job({"last": "2", "every": "5"}))
        save(tmp_path, 7, 8)
        await clock.sleep(SECONDS)
        assert list_steps(tmp_path) == [8, 7, 5, 2, 1]

    play(tmp_path, scene)


def test_a_job_that_ends_is_looked_at_once_more(tmp_path: Path) -> None:
    async def scene(upkeep: Upkeep, clock: VirtualClock) -> None:
        upkeep.see(make_job({"last": "1"}))
        save(tmp_path, 1, 2)
        upkeep.see(make_job({"last": "1"}, finished=True))
        await clock.sleep(SECONDS * 1.5)
        assert list_steps(tmp_path) == [2]
        save(tmp_path, 3)
        await clock.sleep(SECONDS * 3)
        assert list_steps(tmp_path) == [3, 2], "it has ended"

    play(tmp_path, scene)


@pytest.mark.parametrize("notes", [{}, {"last": "0"}, {"last": "x"}])
def test_without_a_policy_nothing_is_removed(tmp_path: Path, notes: dict[str, str]) -> None:
    async def scene(upkeep: Upkeep, clock: VirtualClock) -> None:
        save(tmp_path, 1, 2)
        upkeep.see(make_job({"last": "1"}))
        upkeep.see(make_job(notes))
        await clock.sleep(SECONDS * 3)
        assert list_steps(tmp_path) == [2, 1]

    play(tmp_path, scene)


def test_a_job_without_new_checkpoints_costs_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Policy] = []

    def look(archive: Path, uid: str, policy: Policy) -> list[str]:
        looks.append(policy)
        return []

    monkeypatch.setattr(module, "apply_policy", look)

    async def scene(upkeep: Upkeep, clock: VirtualClock) -> None:
        save(tmp_path, 1, 2)
        upkeep.see(make_job({"last": "2"}))
        await clock.sleep(SECONDS * 5)
        assert len(looks) == 1
        upkeep.see(make_job({"last": "1"}))
        await clock.sleep(SECONDS)
        assert len(looks) == 2, "another policy"

    play(tmp_path, scene)
