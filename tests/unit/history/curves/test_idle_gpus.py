"""Jobs whose GPUs do nothing: when they are reported, how often, and when no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.support.chain import make_chain
from trainmaster.api.labels import IDLE_GPUS_SINCE
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.engine.plan import Note
from trainmaster.history.curves.idle_gpus import IdleGpus, JobGpus
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.usage import GpuUsage
from trainmaster.kit.clock import format_time
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

PERIOD = 1800.0


class Notebook:
    def __init__(self) -> None:
        self.notes: list[Note] = []

    async def record(self, note: Note, reporter: str) -> None:
        self.notes.append(note)

    async def record_all(self, notes: Sequence[Note], reporter: str) -> None:
        self.notes += notes


class Stage:
    """One job, measured every ten seconds."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, seconds: float) -> None:
        self.cluster = cluster
        self.clock = clock
        self.book = Notebook()
        self.watch = self.restart(seconds)

    def restart(self, seconds: float = PERIOD) -> IdleGpus:
        cluster = self.cluster
        self.watch = IdleGpus(cluster.client, self.book, self.find, cluster.clock, seconds)
        return self.watch

    def find(self, job: TrainingJob) -> TrainingJob | None:
        found = self.cluster.view.find(TRAIN_JOBS, job.namespace, job.name)
        return None if found is None else TrainJob(found)

    def read(self) -> TrainJob:
        found = self.cluster.view.find(TRAIN_JOBS, "default", "j")
        assert found is not None
        return TrainJob(found)

    async def measure(self, seconds: float, *percents: int | None) -> None:
        """`percents`: of each of its GPUs; none: the job does not run."""
        gpus = [GpuUsage(number, f"GPU-{number}", percent) for number, percent in enumerate(percents)]
        for _ in range(round(seconds / 10)):
            job = self.read()
            await self.watch.look({job.uid: JobGpus(job, gpus)} if gpus else {})
            await self.clock.sleep(10)

    @property
    def reports(self) -> int:
        return len(self.book.notes)


def run(test: Callable[[Stage], Awaitable[None]], seconds: float = PERIOD) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(clock=clock) as cluster:
            await make_chain(cluster.client)
            await test(Stage(cluster, clock, seconds))

    run_virtual(main(), limit=86_400)


def test_a_job_is_reported_once_for_each_time_that_passes() -> None:
    async def test(stage: Stage) -> None:
        begin = stage.clock.now()
        await stage.measure(PERIOD, 0, 0)
        assert stage.reports == 0 and stage.watch.count() == 0
        await stage.measure(20, 0, 0)
        assert stage.reports == 1 and stage.watch.count() == 2
        assert stage.read().idle_gpus_since == format_time(begin)
        assert stage.book.notes[0].message.startswith(f"its 2 GPUs have done nothing since {format_time(begin)}")
        await stage.measure(PERIOD - 60, 0, 0)
        assert stage.reports == 1
        await stage.measure(120, 0, 0)
        assert stage.reports == 2

    run(test)


@pytest.mark.parametrize("percents", [(0, 1), (0, None), (None, None)], ids=["one works", "one is unknown", "unknown"])
def test_a_job_with_a_gpu_that_works_or_is_not_known_is_not_idle(percents: tuple[int | None, ...]) -> None:
    async def test(stage: Stage) -> None:
        await stage.measure(3 * PERIOD, *percents)
        assert stage.reports == 0 and not stage.read().idle_gpus_since

    run(test)


def test_a_moment_of_work_begins_the_time_again_and_takes_the_mark_away() -> None:
    async def test(stage: Stage) -> None:
        await stage.measure(PERIOD - 60, 0)
        await stage.measure(10, 3)
        await stage.measure(PERIOD - 60, 0)
        assert stage.reports == 0
        await stage.measure(120, 0)
        assert stage.reports == 1 and IDLE_GPUS_SINCE in stage.read().annotations
        await stage.measure(10, 50)
        assert IDLE_GPUS_SINCE not in stage.read().annotations and stage.watch.count() == 0

    run(test)


def test_a_job_that_does_not_run_any_more_loses_its_mark() -> None:
    async def test(stage: Stage) -> None:
        await stage.measure(PERIOD + 20, 0)
        await stage.measure(10)
        assert IDLE_GPUS_SINCE not in stage.read().annotations and stage.watch.count() == 0

    run(test)


def test_after_a_restart_of_the_server_the_mark_stays_and_goes_when_it_works() -> None:
    async def test(stage: Stage) -> None:
        await stage.measure(PERIOD + 20, 0)
        since = stage.read().idle_gpus_since
        stage.restart()
        await stage.measure(PERIOD + 20, 0)
        assert stage.read().idle_gpus_since == since and stage.reports == 2
        stage.restart()
        await stage.measure(10, 90)
        assert not stage.read().idle_gpus_since

    run(test)


def test_the_wall_clock_does_not_count() -> None:
    async def test(stage: Stage) -> None:
        await stage.measure(60, 0)
        stage.clock.step_wall(86_400)
        await stage.measure(60, 0)
        assert stage.reports == 0

    run(test)


def test_nothing_is_reported_where_the_setting_says_so() -> None:
    async def test(stage: Stage) -> None:
        await stage.measure(3 * PERIOD, 0)
        assert stage.reports == 0

    run(test, seconds=0)
