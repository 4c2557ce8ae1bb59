"""What the jobs of a home use: measured at the node for whoever asks, and all the time for their records and to find
out whether they stand still.

CPU and memory come from the shims of Pods, the load of GPUs from the driver. The program that asks the driver is
started when the first Pod with a GPU is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from trainmaster.api.devices import list_shares
from trainmaster.api.resources import JOB_SETS
from trainmaster.apiserver.http.usage import Meter
from trainmaster.client.view import View
from trainmaster.history.curves.idle_gpus import FindJob, IdleGpus, JobGpus
from trainmaster.history.curves.usage import RankUsage, Seat, UsagePoint
from trainmaster.history.curves.usage_keeper import PERIOD_SECONDS, JobUsage, UsageKeeper, UsageStore
from trainmaster.jobs.kinds import find_kind_and_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import GpuUsage, PodMeasurement
from trainmaster.kit.clock import Clock
from trainmaster.node.agent import NodeAgent
from trainmaster.node.devices.loads import list_gpu_usage, list_loads
from trainmaster.node.devices.nvml import NvmlGpu
from trainmaster.node.devices.reader import GpuReader
from trainmaster.node.host.signs import SignReader

_FRESH_SECONDS = 1.0
"""How long one answer of the driver serves everybody."""
_MEBI = 1 << 20
_NANO = 1_000_000_000
MakeIdle: TypeAlias = Callable[[FindJob], IdleGpus]


class PodMeter:
    def __init__(self, meter: Meter, clock: Clock) -> None:
        self._meter = meter
        self._clock = clock
        self._reader: GpuReader | None = None
        self._asking = asyncio.Lock()
        self._loads: tuple[float, dict[str, NvmlGpu]] = (float("-inf"), {})

    async def measure(self, pods: Sequence[Pod]) -> dict[str, PodMeasurement]:
        """Of running Pods, by uid; those that do not answer are missing."""
        measured = await self._meter.measure_pods([dict(pod.raw) for pod in pods])
        loads = await self._read_loads() if any(list_shares(pod.raw) for pod in pods) else {}
        found = {}
        for pod in pods:
            if usages := measured.get(pod.uid):
                cpu = sum(usage.cpu_nanos for usage in usages.values()) / _NANO
                memory = sum(usage.memory_bytes for usage in usages.values())
                found[pod.uid] = PodMeasurement(cpu, memory, list_gpu_usage(pod.raw, loads))
        return found

    async def _read_loads(self) -> dict[str, NvmlGpu]:
        async with self._asking:
            at, loads = self._loads
            if self._clock.monotonic() - at > _FRESH_SECONDS:
                loads = await asyncio.to_thread(self._ask_driver)
                self._loads = self._clock.monotonic(), loads
            return loads

    def _ask_driver(self) -> dict[str, NvmlGpu]:
        if self._reader is None:
            self._reader = GpuReader()
        return list_loads(self._reader)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class NodeUsage:
    """`store`: None if the archive is closed; then nothing is kept, and idle GPUs are not noticed."""

    def __init__(
        self,
        agent: NodeAgent,
        view: View,
        meter: Meter,
        signs: SignReader,
        store: UsageStore | None,
        clock: Clock,
        make_idle: MakeIdle,
    ) -> None:
        self._agent = agent
        self._view = view
        self._clock = clock
        self._signs = signs
        self._pods = PodMeter(meter, clock)
        self.idle = make_idle(self._find_job)
        self._keeper = None if store is None else UsageKeeper(self._measure_jobs, store, clock)

    async def measure(self, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
        return await self._pods.measure(pods)

    def list_pending(self, uid: str) -> Sequence[UsagePoint]:
        return () if self._keeper is None else self._keeper.list_pending(uid)

    async def run(self) -> None:
        """For ever."""
        if self._keeper is not None:
            await self._keeper.run()
        while True:
            await self._measure_jobs()
            await self._clock.sleep(PERIOD_SECONDS)

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.finish()
        self._pods.close()

    def _find_job(self, job: TrainingJob) -> TrainingJob | None:
        found = self._view.find(job.gvr, job.namespace, job.name)
        return None if found is None else type(job)(found)

    async def _measure_jobs(self) -> Mapping[str, JobUsage]:
        ranks = await measure_ranks(self._agent.list_running(), self._view, self._pods)
        await self.idle.look(sum_gpus(ranks))
        await self._signs.look(ranks)
        return sum_jobs(ranks)


@dataclass(frozen=True, slots=True)
class MeasuredRank:
    pod: Pod
    job: TrainingJob
    place: PodPlace
    use: PodMeasurement | None
    """None if the Pod did not answer."""


async def measure_ranks(pods: Sequence[Pod], view: View, meter: PodMeter) -> list[MeasuredRank]:
    """Earlier attempts first."""
    placed = list(_list_ranks(pods, view))
    measured = await meter.measure([pod for pod, _, _ in placed]) if placed else {}
    ranks = [MeasuredRank(pod, job, place, measured.get(pod.uid)) for pod, job, place in placed]
    return sorted(ranks, key=lambda one: one.place.round)


def sum_jobs(ranks: Sequence[MeasuredRank]) -> dict[str, JobUsage]:
    """By uid of the job, what the ranks of its newest attempt use."""
    found: dict[str, tuple[int, dict[Seat, RankUsage]]] = {}
    for rank in ranks:
        uid, place = rank.job.uid, rank.place
        if rank.use is None:
            continue
        if uid not in found or found[uid][0] < place.round:
            found[uid] = place.round, {}
        found[uid][1][place.job, place.index] = build_rank_usage(rank.use)
    return dict(found)


def sum_gpus(ranks: Sequence[MeasuredRank]) -> dict[str, JobGpus]:
    """By uid of the job, its GPUs, of all attempts. Of a Pod that did not answer, they are not known to be idle."""
    jobs: dict[str, TrainingJob] = {}
    gpus: dict[str, list[GpuUsage]] = {}
    for rank in ranks:
        own = list_gpu_usage(rank.pod.raw, {}) if rank.use is None else rank.use.gpus
        if own:
            jobs[rank.job.uid] = rank.job
            gpus.setdefault(rank.job.uid, []).extend(own)
    return {uid: JobGpus(jobs[uid], found) for uid, found in gpus.items()}


def _list_ranks(pods: Sequence[Pod], view: View) -> Iterator[tuple[Pod, TrainingJob, PodPlace]]:
    """Each with its job. Without Pods of an earlier job of the same name, which are still ending."""
    for pod in pods:
        placed = find_kind_and_place(pod.raw)
        if placed is None:
            continue
        model, place = placed
        name = pod.labels.get(model.pod_label, "")
        owner = view.find(JOB_SETS if model.has_jobset else model.gvr, pod.namespace, name)
        job = view.find(model.gvr, pod.namespace, name)
        if job is not None and owner is not None and owner["metadata"]["uid"] == place.jobset:
            yield pod, model(job), place


def build_rank_usage(use: PodMeasurement) -> RankUsage:
    percents = [gpu.percent for gpu in use.gpus if gpu.percent is not None]
    sizes = [gpu.memory_mib for gpu in use.gpus if gpu.memory_mib is not None]
    usage = RankUsage(round(use.cpu * 1000), use.memory // _MEBI)
    return replace(
        usage,
        # 0 only if all are idle.
        gpu=max(round(sum(percents) / len(percents)), int(any(percents))) if percents else None,
        gpu_memory=sum(sizes) if sizes else None,
    )
