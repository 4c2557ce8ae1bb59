"""What the jobs of a home use: measured at the node for whoever asks, and all the time for their records and to find
out whether they stand still.

CPU and memory come from the shims of Pods, the load of GPUs from the driver. The program that asks the driver is
started when the first Pod with a GPU is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trainmaster.api.devices import list_shares
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.apiserver.http.usage import Meter
from trainmaster.client.view import View
from trainmaster.history.curves.usage import RankUsage, Seat, UsagePoint
from trainmaster.history.curves.usage_keeper import PERIOD_SECONDS, JobUsage, UsageKeeper, UsageStore
from trainmaster.jobs.kinds import find_kind_and_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.usage import PodMeasurement
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
    """`store`: None if the archive is closed; then nothing is kept."""

    def __init__(
        self,
        agent: NodeAgent,
        view: View,
        meter: Meter,
        signs: SignReader,
        store: UsageStore | None,
        clock: Clock,
    ) -> None:
        self._agent = agent
        self._view = view
        self._clock = clock
        self._signs = signs
        self._pods = PodMeter(meter, clock)
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

    async def _measure_jobs(self) -> Mapping[str, JobUsage]:
        placed = list(list_ranks(self._agent.list_running(), self._view))
        measured = await self._pods.measure([pod for pod, _, _ in placed]) if placed else {}
        await self._signs.look([(job, pod.uid) for pod, job, _ in placed], measured)
        return sort_usage(placed, measured)


def sort_usage(
    placed: Iterable[tuple[Pod, Object, PodPlace]], measured: Mapping[str, PodMeasurement]
) -> dict[str, JobUsage]:
    """By uid of the job, what the ranks of its newest attempt use."""
    found: dict[str, tuple[int, dict[Seat, RankUsage]]] = {}
    for pod, job, place in sorted(placed, key=lambda one: one[2].round):
        use, uid = measured.get(pod.uid), job["metadata"]["uid"]
        if use is None:
            continue
        if uid not in found or found[uid][0] < place.round:
            found[uid] = place.round, {}
        found[uid][1][place.job, place.index] = build_rank_usage(use)
    return dict(found)


def list_ranks(pods: Sequence[Pod], view: View) -> Iterator[tuple[Pod, Object, PodPlace]]:
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
            yield pod, job, place


def build_rank_usage(use: PodMeasurement) -> RankUsage:
    percents = [gpu.percent for gpu in use.gpus if gpu.percent is not None]
    sizes = [gpu.memory_mib for gpu in use.gpus if gpu.memory_mib is not None]
    usage = RankUsage(round(use.cpu * 1000), use.memory // _MEBI)
    return replace(
        usage,
        gpu=round(sum(percents) / len(percents)) if percents else None,
        gpu_memory=sum(sizes) if sizes else None,
    )
