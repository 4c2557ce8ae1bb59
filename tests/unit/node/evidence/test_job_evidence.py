"""When a Pod is held back to be examined, for how long, and what is kept. The examination is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.api import labels
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound
from trainmaster.api.workloads import Workload
from trainmaster.history import evidence
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import format_time
from trainmaster.kit.scopes import Scope
from trainmaster.node.evidence import job_evidence
from trainmaster.node.evidence.examination import ExaminationError
from trainmaster.node.evidence.job_evidence import JobEvidence
from trainmaster.node.machine.state import ContainerStage, ContainerState, Moment, make_state
from trainmaster.node.tracked import TrackedPod, track
from trainmaster.shim.protocol import Exited, Paths
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

LATE = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
FOUND: Object = {"processes": [{"pid": 7, "rss": 100}], "collective": None}


class World:
    """Two ranks of one TrainJob."""

    def __init__(self, results: Path | None) -> None:
        self.clock = VirtualClock()
        self.results = results
        self.status: Object | None = LATE
        self.examined: list[str] = []
        self.woken: list[tuple[str, float]] = []
        self.answer: Callable[[], Awaitable[Object]] = self.answer_at_once
        self.pods = {f"p{rank}": self.make_pod(rank) for rank in range(2)}
        parts: Any = self
        self.tested = JobEvidence(
            parts, parts, parts, self.clock, self.pods, results, lambda uid: Paths(f"/nonexistent/{uid}")
        )

    def make_pod(self, rank: int) -> TrackedPod:
        marks = {
            labels.JOBSET_UID: "gang",
            labels.REPLICATED_JOB_NAME: "node",
            labels.COMPLETION_INDEX: str(rank),
            labels.RESTART_ATTEMPT: "2",
        }
        meta = {"name": f"pod-{rank}", "namespace": "ns", "uid": f"p{rank}", "labels": marks}
        pod = track(Pod({"metadata": meta, "spec": {"containers": [{"name": "node"}]}, "status": {"phase": "Running"}}))
        state = make_state(pod.plan, Moment(self.clock.boot(), self.clock.now()))
        pod.state = replace(state, containers=(ContainerState("node", stage=ContainerStage.RUNNING),))
        return pod

    def delete(self, rank: int = 0, grace: int = 30) -> TrackedPod:
        pod = self.pods[f"p{rank}"]
        raw = cast("Any", pod.obj.raw)
        moment = {"deletionTimestamp": format_time(self.clock.now()), "deletionGracePeriodSeconds": grace}
        pod.take(Pod({**raw, "metadata": {**raw["metadata"], **moment}}))
        return pod

    # What JobEvidence is given

    async def get(self, gvr: GVR, name: str, namespace: str = "") -> Object:
        if self.status is None:
            raise NotFound(404, "NotFound", "gone")
        return {"kind": "TrainJob", "metadata": {"name": name, "uid": "job"}, "spec": {}, "status": self.status}

    async def resolve(self, obj: Object) -> Workload:
        return Workload("TrainJob", "ns", "late", "job", gang="gang", gang_name="late")

    async def examine(self, uid: str, container: str, seconds: float, most_bytes: int) -> Object:
        self.examined.append(uid)
        return await self.answer()

    async def answer_at_once(self) -> Object:
        return FOUND

    def read(self) -> Object:
        assert self.results is not None
        found = evidence.find(self.results, "job", 2)
        assert found is not None
        return found


def play(results: Path | None, scene: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(results)
        async with Scope("test") as scope:
            world.tested.attach(scope, lambda uid: world.woken.append((uid, world.clock.boot())))
            await scene(world)

    run_virtual(main())


async def wait_for_release(world: World, pod: TrackedPod) -> float:
    """How long it took."""
    began = world.clock.boot()
    assert await world.tested.hold(pod)
    while await world.tested.hold(pod):
        await asyncio.sleep(0.01)
    return world.clock.boot() - began


def test_all_ranks_are_examined_once_before_the_first_is_stopped(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        first, second = world.delete(0), world.delete(1)
        assert await world.tested.hold(first) and await world.tested.hold(second)
        await wait_for_release(world, first)
        assert not await world.tested.hold(second)
        assert sorted(world.examined) == ["p0", "p1"]
        assert {uid for uid, _ in world.woken} == {"p0", "p1"}
        found = world.read()
        assert (found["reason"], [rank["worker"] for rank in found["ranks"]]) == ("DeadlineExceeded", [0, 1])
        assert found["ranks"][0]["memory"]["used"] == 100

    play(tmp_path, scene)


def test_a_stop_never_waits_longer_than_two_seconds(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async def never() -> Object:
            await asyncio.Event().wait()
            raise AssertionError

        world.answer = never
        took = await wait_for_release(world, world.delete())
        assert 1.5 < took <= job_evidence.MOST_SECONDS + 0.02
        assert world.read()["ranks"][0]["error"] == "its processes could not be examined within 1.8 s"

    play(tmp_path, scene)


@pytest.mark.parametrize("error", [ExaminationError("no"), OSError(28, "full"), RuntimeError("a mistake of ours")])
def test_a_collector_that_fails_does_not_keep_the_job_from_being_stopped(tmp_path: Path, error: Exception) -> None:
    async def scene(world: World) -> None:
        async def fail() -> Object:
            raise error

        world.answer = fail
        assert await wait_for_release(world, world.delete()) < 0.1

    play(tmp_path, scene)


def test_the_grace_period_begins_after_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        pod = world.delete()
        await asyncio.sleep(5)
        began = world.clock.boot()
        await wait_for_release(world, pod)
        assert pod.state is not None and pod.state.deletion_seen is not None and pod.state.deletion_seen >= began

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("status", "grace"),
    [
        pytest.param({}, 30, id="a job that does not hang"),
        pytest.param({"stalls": {"restarts": 1, "attempt": 2}}, 30, id="an attempt after one that stood still"),
        pytest.param({"conditions": [{"type": "Failed", "status": "True", "reason": "X"}]}, 30, id="failed by itself"),
        pytest.param(None, 30, id="a job that is gone"),
        pytest.param(LATE, 0, id="by force"),
    ],
)
def test_other_pods_are_stopped_at_once(tmp_path: Path, status: Object | None, grace: int) -> None:
    async def scene(world: World) -> None:
        world.status = status
        assert not await world.tested.hold(world.delete(grace=grace))
        assert world.examined == []

    play(tmp_path, scene)


def test_pods_that_stay_are_not_examined(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        assert not await world.tested.hold(world.pods["p0"])

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"stalled": {"since": "2026-11-19T02:13:00Z"}}, id="stopped by hand"),
        pytest.param({"stalls": {"restarts": 1, "attempt": 3}}, id="restarted"),
        pytest.param({"conditions": [{"type": "Failed", "status": "True", "reason": "Stalled"}]}, id="failed"),
    ],
)
def test_a_job_that_stands_still_is_examined_when_it_is_stopped(tmp_path: Path, status: Object) -> None:
    async def scene(world: World) -> None:
        world.status = status
        await wait_for_release(world, world.delete())
        assert world.read()["reason"] == "Stalled"

    play(tmp_path, scene)


def test_what_a_server_that_crashed_has_kept_is_not_collected_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        pod = world.delete()
        await asyncio.sleep(1)
        await wait_for_release(world, pod)
        again = World(tmp_path)
        again.pods["p0"].take(pod.obj)
        async with Scope("again") as scope:
            again.tested.attach(scope, lambda _: None)
            assert not await again.tested.hold(again.pods["p0"])

    play(tmp_path, scene)


def test_two_who_ask_at_the_same_time_get_the_same(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        one, two = await asyncio.gather(world.tested.collect("job"), world.tested.collect("job"))
        assert one is not None and one is two and len(world.examined) == 2
        assert await world.tested.collect("another") is None

    play(tmp_path, scene)


def test_without_a_place_to_keep_it_it_is_still_collected() -> None:
    async def scene(world: World) -> None:
        found = await world.tested.collect("job")
        assert found is not None and len(found["ranks"]) == 2

    play(None, scene)


def test_ranks_that_fail_are_noted_but_not_those_that_are_stopped(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.tested.note_end(world.pods["p1"], "node", 0, Exited(0, 10.0))
        world.tested.note_end(world.delete(0), "node", 0, Exited(143, 10.0, signal=15))
        world.tested.note_end(world.pods["p1"], "node", 0, Exited(137, 10.0, signal=9, oom_killed=True, message="x"))
        await asyncio.sleep(1)
        (rank,) = world.read()["ranks"]
        assert (rank["worker"], rank["end"]["oom_killed"], rank["end"]["message"]) == (1, True, "x")

    play(tmp_path, scene)
