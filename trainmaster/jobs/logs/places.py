"""Which attempts, ranks and containers a job has, to tell a request for others from a process that printed nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_spec
from trainmaster.api.training.steps import list_container_names
from trainmaster.client.contract import Client
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.logs.contract import JobLogOptions, Kept, KeptLog
from trainmaster.jobs.lookups import read_parts
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob


class LogSource(NamedTuple):
    attempt: int
    step: str
    """The replicated job."""
    rank: int
    container: str


def identify_pod(pod: Object) -> str:
    """`PodPlace.id`; the name of a Pod that belongs to no training job."""
    place = find_place(pod)
    return pod["metadata"]["name"] if place is None else place.id


async def list_log_sources(client: Client, job: TrainingJob, kept: Kept) -> set[LogSource]:
    """Those of the job's Pods, also of Pods that do not exist yet, and of what was kept."""
    parts = await read_parts(client, job)
    found = list_kept_sources(kept.list_logs(job.uid, parts.uids))
    for pod in parts.pods:
        place = find_place(pod)
        if place is not None:
            names = [name for name, _ in Pod(pod).list_states()]
            found |= {LogSource(place.attempt, place.job, place.index, name) for name in names}
    return found if parts.jobset is None else found.union(_list_planned(parts.jobset))


def list_kept_sources(logs: Iterable[KeptLog]) -> set[LogSource]:
    return {LogSource(log.place.attempt, log.place.job, log.place.index, log.container) for log in logs}


def _list_planned(jobset: JobSet) -> Iterator[LogSource]:
    for job in jobset.replicated_jobs:
        count = read_spec(job["template"]).get("parallelism") or 1
        names = [*list_container_names(job, "initContainers"), *list_container_names(job)]
        for attempt in range(jobset.attempt + 1):
            yield from (LogSource(attempt, job["name"], rank, name) for rank in range(count) for name in names)


def list_gone(
    jobset: JobSet, present: Collection[PodPlace], wanted: JobLogOptions, *, has_ended: bool
) -> dict[int, list[str]]:
    """By attempt, what is no longer there because the Pods are gone and nobody kept their logs. Pods of the current
    attempt count once the job has ended; before, they may be about to be made."""
    attempts = range(jobset.attempt + 1 if has_ended else jobset.attempt)
    seats = sorted({(source.attempt, source.step, source.rank) for source in _list_planned(jobset)})
    there = {(place.round, place.job, place.index) for place in present}
    found: dict[int, list[str]] = {}
    for attempt in attempts:
        asked = [
            (step, rank)
            for number, step, rank in seats
            if number == attempt
            and wanted.attempt in (None, attempt)
            and wanted.rank in (None, rank)
            and wanted.job in ("", step)
        ]
        gone = [seat for seat in asked if (attempt, *seat) not in there]
        if gone and len(gone) == len(asked) > 1:
            found[attempt] = [f"its {len(gone)} Pods are gone, and their logs with them"]
        elif gone:
            found[attempt] = [f"the Pod of {step} {rank} is gone, and its log with it" for step, rank in gone]
    return found


def find_absent(name: str, wanted: JobLogOptions, sources: Collection[LogSource]) -> str:
    """A sentence about the first thing that is wanted and that the job does not have; "" if it has all of it."""
    # Following waits for attempts that have not begun.
    attempt = None if wanted.follow else wanted.attempt
    left = list(sources)
    for word, value, index in (
        ("step", wanted.job or None, 1),
        ("attempt", attempt, 0),
        ("rank", wanted.rank, 2),
        ("container", wanted.container or None, 3),
    ):
        there = sorted({source[index] for source in left})
        if value is None or not there:
            continue
        if value not in there:
            return f"{name} has no {word} {value}: it has {_list_values(word, there)}"
        left = [source for source in left if source[index] == value]
    return ""


def _list_values(word: str, values: Sequence[int | str]) -> str:
    if len(values) == 1:
        return f"only {word} {values[0]}"
    first, last = values[0], values[-1]
    if isinstance(first, int) and isinstance(last, int) and last - first == len(values) - 1 > 1:
        return f"{word}s {first} to {last}"
    return f"{word}s {', '.join(map(str, values[:-1]))} and {last}"
