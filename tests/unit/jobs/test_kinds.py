"""A new kind is a model and a line in the table: every reader of jobs works with one that it has never heard of."""

from __future__ import annotations

import asyncio
import io
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from tests.unit.controllers.world import NOW, World
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_fields, read_labels
from trainmaster.api.resources import EVENTS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError, forbidden
from trainmaster.cli import exits
from trainmaster.cli.commands import describe
from trainmaster.cli.context import CommandContext
from trainmaster.cli.doctor.trainjob import collect as collect_case
from trainmaster.cli.jobpage import build_page
from trainmaster.cli.jobs import get_job, get_jobs
from trainmaster.cli.jobtable import build_lines
from trainmaster.cli.servers.flags import read_job as read_job_name
from trainmaster.client.contract import ListOptions, LogOptions, ObjectList, PatchType, WatchEvent, WatchOptions
from trainmaster.client.http import HttpClient, HttpWatch
from trainmaster.client.transport import HttpAnswer
from trainmaster.client.writes import Delete
from trainmaster.controllers.explain.reasons import explain, list_waiting
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.engine.feed import Feed
from trainmaster.engine.request import Request
from trainmaster.history.archive import Archive, Filter
from trainmaster.history.gathering import ViewGather
from trainmaster.history.keeper import Keeper
from trainmaster.history.record import build_record
from trainmaster.history.remote import ClientGather
from trainmaster.history.rendering import describe as describe_record
from trainmaster.jobs.control import set_suspended
from trainmaster.jobs.diagnosis import examine
from trainmaster.jobs.janitor import FinishedJobFilter, plan_finished, plan_orphans
from trainmaster.jobs.kinds import TRAINING_KINDS, read_training_job
from trainmaster.jobs.logs.contract import Line
from trainmaster.jobs.logs.stream import watch_lines
from trainmaster.jobs.lookups import AmbiguousName, list_training_jobs
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import COMPLETE, FAILED, TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.kit.timeline import Now
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.jobs import JobFilter, list_jobs, read_job
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

TOY_JOBS = GVR("toys.example.dev", "v1", "toyjobs")
NAME, ROLE, INDEX = "toys/job-name", "toys/role", "toys/index"


class ToyJob(TrainingJob):
    """Its Pods hang directly below it, in groups by role."""

    __slots__ = ()

    gvr: ClassVar[GVR] = TOY_JOBS
    ends: ClassVar[dict[str, str]] = {"Succeeded": COMPLETE, "Failed": FAILED}
    pod_label: ClassVar[str] = NAME

    @staticmethod
    def find_place(pod: Fields) -> PodPlace | None:
        labels = read_labels(pod)
        if NAME not in labels:
            return None
        (owner,) = pod["metadata"]["ownerReferences"]
        return PodPlace(owner["uid"], 0, labels[ROLE], 0, int(labels[INDEX]), pod["metadata"]["name"])

    @property
    def nodes(self) -> int | None:
        return sum(map(int, self.spec["replicas"].values()))

    @property
    def is_suspended(self) -> bool:
        return bool(read_fields(self.spec, "policy").get("paused"))

    @staticmethod
    def build_suspension(suspend: bool) -> Object:
        return {"spec": {"policy": {"paused": suspend}}}

    @property
    def is_active(self) -> bool:
        return bool(self.status.get("active"))

    @property
    def is_ready(self) -> bool:
        return self.is_active


def make_job(name: str = "toy", **status: Any) -> Object:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    meta["creationTimestamp"] = format_time(NOW - timedelta(hours=1))
    spec = {"replicas": {"chief": 1, "worker": 2}, "ttlSecondsAfterFinished": 60}
    return {"apiVersion": "toys.example.dev/v1", "kind": "ToyJob", "metadata": meta, "spec": spec, "status": status}


def make_ended(kind: str = "Succeeded", seconds: float = 600) -> Object:
    moment = format_time(NOW - timedelta(seconds=seconds))
    return make_job(conditions=[{"type": kind, "status": "True", "lastTransitionTime": moment, "reason": "Done"}])


def make_pod(role: str, index: int, job: str = "toy") -> Object:
    owner = {"kind": "ToyJob", "name": job, "uid": f"uid-{job}", "controller": True}
    labels = {NAME: job, ROLE: role, INDEX: str(index)}
    name = f"{job}-{role}-{index}"
    meta = {"name": name, "namespace": "default", "uid": name, "labels": labels, "ownerReferences": [owner]}
    state = {"running": {"startedAt": format_time(NOW)}}
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": status}


PODS_OF_TOY = [make_pod("chief", 0), make_pod("worker", 0), make_pod("worker", 1)]


class Shelf(HttpClient):
    """A server that has these objects, and no kinds besides."""

    def __init__(self, objects: dict[GVR, list[Object]]) -> None:
        self.objects = {TRAIN_JOBS: [], PODS: PODS_OF_TOY, EVENTS: [], **objects}
        self.patches: list[tuple[GVR, str, Any]] = []

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        for obj in self.objects.get(gvr, ()):
            if obj["metadata"]["name"] == name:
                return obj
        raise NotFound(404, "NotFound", f"no {gvr.plural} {name}")

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008
        if gvr not in self.objects:
            raise NotFound(404, "NotFound", f"no {gvr.plural}")
        key, _, value = options.label_selector.partition("=")
        found = [obj for obj in self.objects[gvr] if not key or read_labels(obj).get(key) == value]
        return ObjectList(found, "1")

    async def patch(
        self, gvr: GVR, name: str, patch_type: PatchType, patch: object, namespace: str = "", **more: Any
    ) -> Object:
        self.patches.append((gvr, name, patch))
        return {}

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = WatchOptions()) -> HttpWatch:  # noqa: B008
        return cast(HttpWatch, stay_silent())

    async def create(self, gvr: GVR, obj: Object, *rest: Any, **more: Any) -> Object:
        return {"status": {"allowed": True}}

    async def request(self, *rest: Any, **more: Any) -> HttpAnswer:
        return HttpAnswer(200, {}, b"")

    async def logs(
        self,
        name: str,
        namespace: str,
        options: LogOptions = LogOptions(),  # noqa: B008
    ) -> AsyncIterator[bytes]:
        yield f"2026-01-01T00:00:00Z hello from {name}\n".encode()


@asynccontextmanager
async def stay_silent() -> AsyncIterator[AsyncIterator[WatchEvent]]:
    async def wait() -> AsyncIterator[WatchEvent]:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})

    yield wait()


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The line in the table."""
    monkeypatch.setitem(TRAINING_KINDS, "ToyJob", ToyJob)
    yield


def make_context() -> CommandContext:
    return CommandContext(out=io.StringIO(), err=io.StringIO(), environ={})


def test_it_is_listed_described_and_named() -> None:
    shelf = Shelf({TOY_JOBS: [make_job(active=3)]})

    async def main() -> list[str]:
        (job,) = await list_training_jobs(shelf)
        assert (await get_job(shelf, "default", "toy")).uid == job.uid
        lines = build_lines(make_context(), Namespace(output="wide", all_namespaces=False), [job], {})
        assert lines[1].split()[:4] == ["ToyJob", "toy", "Running", "3"]
        return list(build_page(make_context(), await describe.collect(shelf, "default", "toy")))

    page = asyncio.run(main())
    assert page[0] == "ToyJob default/toy: Running"
    assert [line.split()[:2] for line in page if "toy-" in line] == [["chief", "0"], ["worker", "0"], ["worker", "1"]]
    assert any("ToyJob spec.ttlSecondsAfterFinished" in line for line in page)
    assert read_job_name("toyjob.toys.example.dev/toy") == "toyjob/toy"


def test_a_name_of_several_kinds_needs_the_kind() -> None:
    trainjob = {"metadata": {"name": "toy", "namespace": "default", "uid": "uid-trainjob"}, "spec": {}}
    shelf = Shelf({TOY_JOBS: [make_job()], TRAIN_JOBS: [trainjob]})

    async def main() -> None:
        with pytest.raises(AmbiguousName, match="say trainjob/toy or toyjob/toy"):
            await get_job(shelf, "default", "toy")
        assert (await get_job(shelf, "default", "toyjob/toy")).uid == "uid-toy"
        assert (await get_job(shelf, "default", "trainjob/toy")).uid == "uid-trainjob"
        found = await get_jobs(shelf, "default", ["toyjob/toy", "trainjob/toy", "toyjob/toy"])
        assert [job.uid for job in found] == ["uid-toy", "uid-trainjob"]
        with pytest.raises(exits.Failure, match='there is no PyTorchJob "toy" in namespace default'):
            await get_job(shelf, "default", "pytorchjob/toy")

    asyncio.run(main())


def test_kinds_that_the_caller_may_not_read_are_left_out() -> None:
    class OthersShelf(Shelf):
        async def get(self, gvr: GVR, *rest: Any, **more: Any) -> Object:
            self._check(gvr)
            return await super().get(gvr, *rest, **more)

        async def list(self, gvr: GVR, *rest: Any, **more: Any) -> ObjectList:
            self._check(gvr)
            return await super().list(gvr, *rest, **more)

        def _check(self, gvr: GVR) -> None:
            if gvr.group == "kubeflow.org":
                raise forbidden(gvr, "", "not yours")

    async def main() -> None:
        shelf = OthersShelf({TOY_JOBS: [make_job()]})
        assert [job.name for job in await list_training_jobs(shelf)] == ["toy"]
        assert (await get_job(shelf, "default", "toy")).uid == "uid-toy"
        with pytest.raises(exits.MissingJob):
            await get_job(shelf, "default", "nobody")
        with pytest.raises(StatusError, match="not yours"):
            await list_training_jobs(shelf, kind=TRAINING_KINDS["TFJob"])

    asyncio.run(main())


def test_its_logs_are_found_by_its_own_labels() -> None:
    async def main() -> list[tuple[str, int, str]]:
        entries = watch_lines(Shelf({TOY_JOBS: [make_job(active=3)]}), SystemClock(), "default", "toy")
        return [(line.job, line.rank, line.text) async for line in entries if isinstance(line, Line)]

    found = asyncio.run(main())
    assert sorted(found) == [
        ("chief", 0, "hello from toy-chief-0"),
        ("worker", 0, "hello from toy-worker-0"),
        ("worker", 1, "hello from toy-worker-1"),
    ]


def test_it_is_suspended_in_its_own_way() -> None:
    shelf = Shelf({})
    assert asyncio.run(set_suspended(shelf, ToyJob(make_job()), True))
    assert shelf.patches == [(TOY_JOBS, "toy", {"metadata": {"uid": "uid-toy"}, "spec": {"policy": {"paused": True}}})]


def test_history_gathers_its_pods_and_keeps_a_record(tmp_path: Path) -> None:
    world = World()
    for pod in PODS_OF_TOY:
        world.add(PODS, pod)
    ended = make_ended()
    seen = asyncio.run(ViewGather(world, cast(Feed, None))(ended, ()))
    asked = asyncio.run(ClientGather(Shelf({}), tmp_path)(ended, ()))
    names = ["toy-chief-0", "toy-worker-0", "toy-worker-1"]
    for sources in (seen, asked):
        assert sorted(pod["metadata"]["name"] for pod in sources.pods) == names
        assert (sources.snapshot, list(sources.jobsets), list(sources.jobs)) == (None, [], [])
    record = build_record(seen)
    assert (record.state, record.runtime) == (COMPLETE, "")
    assert "State:      Complete" in list(describe_record(record, ()))


def test_history_follows_it_to_its_end_and_notices_that_it_is_gone(tmp_path: Path) -> None:
    shelf = Shelf({TOY_JOBS: [make_job(active=3)], JOB_SETS: []})

    async def main() -> None:
        archive = Archive.open(tmp_path)
        for _ in range(2):
            clock = VirtualClock()
            async with Keeper(archive, shelf, ClientGather(shelf, tmp_path), clock).running():
                await clock.sleep(5)
            # It goes while nobody looks.
            shelf.objects[TOY_JOBS] = []
        (line,) = archive.select(Filter(deleted=True))
        assert (line.name, line.state, archive.list_jobsets(line.uid)) == ("toy", "Deleted", [line.uid])
        archive.close()

    run_virtual(main())


def test_retention_and_limits_delete_it() -> None:
    world = World()
    world.add(TOY_JOBS, make_ended())
    controllers = {controller.kind: controller for controller in retention.build_controllers()}
    controller = controllers[TOY_JOBS]
    assert list(controller.sources[0].requests(world, make_ended())) == [Request("default", "toy")]
    plan = controller.reconcile(world, Request("default", "toy"), Now(NOW), ())
    (gone,) = plan.all_writes
    assert isinstance(gone, Delete) and (gone.gvr, gone.uid) == (TOY_JOBS, "uid-toy")
    assert TOY_JOBS in {source.gvr for source in limits.build_controller().sources}


def test_it_is_explained() -> None:
    world = World()
    world.add(TOY_JOBS, make_job(active=3))
    for pod in PODS_OF_TOY:
        world.add(PODS, pod)
    world.add(TOY_JOBS, make_job("held", waiting={"reason": "Queued", "message": "no room", "since": "2026"}))
    running = explain(world, "default", "toy", Now(NOW))
    waiting = explain(world, "default", "held", Now(NOW))
    assert running is not None and running.sentence.startswith("runs") and "3 Pods run" in running.sentence
    assert waiting is not None and waiting.sentence == "waits (Queued): no room"
    assert list_waiting(world) == [("default", "toyjob/held")]


def test_the_janitor_and_the_doctor_know_it() -> None:
    (removal,) = plan_finished([ToyJob(make_ended())], FinishedJobFilter(), datetime.now(UTC))
    assert (removal.gvr, removal.name) == (TOY_JOBS, "toy")
    assert [item.name for item in plan_orphans([], {PODS: PODS_OF_TOY[:1]})] == ["toy-chief-0"]
    assert not list(plan_orphans([ToyJob(make_job())], {PODS: PODS_OF_TOY}))
    case = asyncio.run(collect_case(Shelf({TOY_JOBS: [make_ended(seconds=30)]}), "toy", "default"))
    assert len(case.pods) == 3 and "runtime" not in {finding.check for finding in examine(case)}


def test_rest_lists_and_reads_it() -> None:
    shelf = Shelf({TOY_JOBS: [make_job("a", active=3), make_job(active=3)]})

    async def main() -> None:
        first = await list_jobs(shelf, JobFilter("default", limit=5))
        assert [(item["name"], item["state"]) for item in first.items] == [("a", "Running"), ("toy", "Running")]
        with pytest.raises(Problem):
            await list_jobs(shelf, JobFilter("default", token="others~1"))
        detail = await read_job(shelf, "default", "toy")
        assert (detail["nodes"], len(detail["workers"]), detail["attempt"]) == (3, 3, 0)
        assert detail["retention"]["seconds"] == 60

    asyncio.run(main())


def test_a_jobset_that_another_made_is_not_shown_to_the_doctor() -> None:
    job = {**make_job(), "kind": "TrainJob", "spec": {"runtimeRef": {"name": "none"}}}
    foreign = {"metadata": {"name": "toy", "namespace": "default", "uid": "js"}, "spec": {}}
    shelf = Shelf({TRAIN_JOBS: [job], JOB_SETS: [foreign], JOBS: []})
    case = asyncio.run(collect_case(shelf, "toy", "default"))
    assert (list(case.jobsets), list(case.jobs), list(case.pods)) == ([], [], [])


def test_what_is_no_training_job_has_no_model() -> None:
    assert isinstance(read_training_job({"metadata": {"name": "a"}}), TrainJob)
    with pytest.raises(KeyError):
        read_training_job({"kind": "Pod", "metadata": {"name": "a"}})
