"""What a job reported and used over time, as columns, and what it uses now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainmaster.api.meta import Object
from trainmaster.api.pods.requests import GPU, count_requests
from trainmaster.api.training.reports import STEP, TOTAL
from trainmaster.client.contract import Client
from trainmaster.history.curves.series import Point
from trainmaster.history.curves.usage import DAY, HOUR, UsagePoint, choose_by_minute, choose_evenly, condense, list_rows
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.lookups import read_parts
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import PodMeasurement, read_share
from trainmaster.rest.contract import MeasurePods

Span = Literal["now", "hour", "day", "all"]
SECONDS: dict[Span, int] = {"hour": HOUR, "day": DAY}
_MOST_VALUES = 60_000
"""Points times ranks in one answer."""
_MEBI = 1 << 20


def build_series(points: Sequence[Point]) -> Object:
    names = dict.fromkeys(name for point in points for name in point.metrics if name not in (STEP, TOTAL))
    return {
        "times": [point.at for point in points],
        "attempts": [point.attempt for point in points],
        "steps": [point.metrics.get(STEP) for point in points],
        "percents": [point.progress for point in points],
        "metrics": [{"name": name, "values": [point.metrics.get(name) for point in points]} for name in names],
    }


def join(kept: Sequence[UsagePoint], pending: Sequence[UsagePoint]) -> list[UsagePoint]:
    """What was just stored may be in both."""
    known = {point.at for point in kept}
    return [*kept, *(point for point in pending if point.at not in known)]


def shorten(points: Sequence[UsagePoint], span: Span) -> list[UsagePoint]:
    """As few as an answer has: an hour as it was measured, a day by minute, everything in 512."""
    rows = list_rows(points)
    if span == "day":
        points = condense(points, choose_by_minute(rows))
    elif span == "all":
        points = condense(points, choose_evenly(rows))
    ranks = len({seat for point in points for seat in point.ranks})
    return condense(points, choose_evenly(list_rows(points), max(2, _MOST_VALUES // max(1, ranks))))


def build_usage(points: Sequence[UsagePoint]) -> Object:
    seats = sorted({seat for point in points for seat in point.ranks})
    return {
        "times": [point.at for point in points],
        "attempts": [point.attempt for point in points],
        "ranks": [_build_rank(points, *seat) for seat in seats],
    }


def _build_rank(points: Sequence[UsagePoint], job: str, worker: int) -> Object:
    found = [point.ranks.get((job, worker)) for point in points]
    gpu = [None if one is None else one.gpu for one in found]
    gpu_memory = [None if one is None or one.gpu_memory is None else one.gpu_memory * _MEBI for one in found]
    return {
        "job": job,
        "worker": worker,
        "cpu": [None if one is None or one.cpu is None else one.cpu / 1000 for one in found],
        "memory": [None if one is None or one.memory is None else one.memory * _MEBI for one in found],
        "gpu": [] if all(value is None for value in gpu) else gpu,
        "gpu_memory": [] if all(value is None for value in gpu_memory) else gpu_memory,
    }


async def read_now(client: Client, job: TrainingJob, measure: MeasurePods) -> list[Object]:
    """What the ranks of the job that run use, in order."""
    parts = await read_parts(client, job)
    running = [pod for pod in map(Pod, parts.pods) if pod.is_running]
    uses = await measure(client, job, running) if running else {}
    placed = [(place, pod) for pod in running if (place := find_place(pod.raw)) is not None]
    return [_build_now(place, pod, uses.get(pod.uid)) for place, pod in sorted(placed, key=lambda one: one[0].seat)]


def _build_now(place: PodPlace, pod: Pod, use: PodMeasurement | None) -> Object:
    share = read_share(pod)
    gpus = () if use is None else use.gpus
    return {
        "job": place.job,
        "worker": place.index,
        "pod": place.pod,
        "attempt": place.attempt,
        "node": pod.node or None,
        "cpu": None if use is None else round(use.cpu, 3),
        "cpu_requested": share.cpu or None,
        "memory": None if use is None else use.memory,
        "memory_limit": share.memory or None,
        "gpu_count": len(gpus) or count_requests(pod.spec).get(GPU, 0),
        "gpus": [
            {"index": gpu.index, "id": gpu.id, "percent": gpu.percent, "memory_mib": gpu.memory_mib} for gpu in gpus
        ],
    }
