"""The attempts of a job: when each began and ended, its workers, and why it failed. From its Pods and kept logs.

Pods of earlier attempts are gone. What is known of these is which workers have printed something, when the first of
them did, and, of the newest failure, the verdict.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from trainmaster.api.meta import Object
from trainmaster.api.training.reports import STEP
from trainmaster.history.curves.series import Point
from trainmaster.jobs.kinds import find_kind_and_place
from trainmaster.jobs.logs.contract import Kept, KeptLog
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import format_time
from trainmaster.rest.models.jobs import JobAttempt
from trainmaster.rest.services.job_views import build_verdict, build_worker

_KINDS_OF_ENDS = ("Succeeded", "Failed")


async def list_attempts(job: TrainingJob, pods: Sequence[Pod], jobsets: Iterable[str], kept: Kept) -> list[Object]:
    """In a thread, because it reads the first line of each kept log. `jobsets`: uids that are known besides."""
    uids = frozenset(jobsets)
    return await asyncio.to_thread(_list, job, pods, uids, kept)


def build_attempts(attempts: Sequence[Object], points: Sequence[Point]) -> list[JobAttempt]:
    """With the steps that were reported, from which is seen where an attempt went on. The first report also tells when
    it began: Pods of earlier attempts are gone, and many programs print nothing for long."""
    steps: defaultdict[int, list[float]] = defaultdict(list)
    reported: dict[int, str] = {}
    for point in points:
        reported.setdefault(point.attempt, format_time(datetime.fromtimestamp(point.at, UTC)))
        if (step := point.metrics.get(STEP)) is not None:
            steps[point.attempt].append(step)
    found = []
    for one in attempts:
        own = steps[one["attempt"]]
        first, last = (own[0], own[-1]) if own else (None, None)
        begin = min(filter(None, (one["began_at"], reported.get(one["attempt"]))), default=None)
        found.append(JobAttempt(**{**one, "began_at": begin}, first_step=first, last_step=last))
    return found


def _list(job: TrainingJob, pods: Sequence[Pod], jobsets: frozenset[str], kept: Kept) -> list[Object]:
    workers: defaultdict[int, dict[tuple[str, int, str], Object]] = defaultdict(dict)
    starts: dict[int, str] = {}
    for log in kept.list_logs(job.uid, jobsets):
        place = log.place
        workers[place.round].setdefault(_get_seat(place), _build_gone(place))
        time = _read_first_time(kept, log)
        if time and time < starts.get(place.round, "~"):
            starts[place.round] = time
    for pod in pods:
        found = find_kind_and_place(pod.raw)
        if found is not None:
            workers[found[1].round][_get_seat(found[1])] = build_worker(found[1], pod)
    verdict = build_verdict(job)
    return [
        _build_attempt(job, number, list(seats.values()), starts.get(number, ""), verdict)
        for number, seats in sorted(workers.items())
    ]


def _build_attempt(
    job: TrainingJob, number: int, workers: list[Object], first_line: str, verdict: Object | None
) -> Object:
    starts = [one["started_at"] for one in workers if one["started_at"]]
    ends = [one["finished_at"] for one in workers if one["finished_at"]]
    has_ended = all(one["state"] in _KINDS_OF_ENDS for one in workers)
    failed = verdict is not None and verdict["attempt"] == number
    end = verdict["finished_at"] if verdict is not None and failed else max(ends, default=None) if has_ended else None
    return {
        "attempt": number,
        "began_at": min(starts, default=first_line[:19] + "Z" if first_line else None),
        "ended_at": end,
        "workers": sorted(workers, key=_get_order),
        "verdict": verdict if failed else None,
    }


def _build_gone(place: PodPlace) -> Object:
    """A worker of which nothing but its log is left."""
    empty = dict.fromkeys(("reason", "message", "exit_code", "node", "started_at", "finished_at"))
    head = {"job": place.job, "worker": place.index, "pod": place.pod, "attempt": place.attempt}
    return {**head, "state": "Gone", "restarts": 0, **empty}


def _read_first_time(kept: Kept, log: KeptLog) -> str:
    return next((time for time, _ in kept.read(log) if time), "")


def _get_seat(place: PodPlace) -> tuple[str, int, str]:
    return place.job, place.index, place.id


def _get_order(worker: Object) -> tuple[str, int]:
    return worker["job"], worker["worker"]
