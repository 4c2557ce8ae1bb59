"""Records of jobs for `/api/v1/history`: a filtered and paged list, one complete record, and the kept logs.

Reads the archive in a thread, with its own read-only connection; an installation without an archive has no records.
Only `purge` writes, as `trainmaster history purge` does beside a server.
Access is checked before (`namespaces.check_reader`): it requires permission to read TrainJobs of that namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_status, read_text
from trainmaster.history import logs, purging
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter, RecordLine
from trainmaster.history.curves.series import Point
from trainmaster.history.curves.usage import UsagePoint
from trainmaster.history.kept_logs import KeptLogs
from trainmaster.history.paging import build_token, read_token
from trainmaster.history.record import JobRecord, RecordFacts, read_facts
from trainmaster.jobs.kinds import find_place, read_training_job
from trainmaster.jobs.logs.contract import Kept, NothingKept
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.rest.problems import FieldProblem, Problem, invalid, not_found
from trainmaster.rest.services.job_reader import describe_outcome
from trainmaster.rest.services.job_views import build_verdict, build_worker
from trainmaster.rest.services.namespaces import ALL

T = TypeVar("T")
_EVENTS = 500


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    namespaces: Sequence[str] = ALL
    name: str = ""
    state: str = ""
    deleted: bool | None = None
    limit: int = 100
    token: str = ""
    query: str = ""
    """Words that all have to occur."""
    runtime: str = ""
    user: str = ""
    since: str = ""
    """Only those that ended at this time or later (RFC 3339)."""
    until: str = ""
    """Only those that ended before this time."""


class HistoryService:
    """`directory` is the archive's; None if there is none."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.kept: Kept = NothingKept() if directory is None else KeptLogs(directory)

    async def select(self, wanted: RecordsWanted) -> tuple[list[Object], str]:
        """Newest first, and the token of the next page."""
        found = build_filter(wanted)
        lines: list[RecordLine] = await self._ask(lambda archive: archive.select(found), list[RecordLine]())
        page = lines[: wanted.limit]
        token = build_token(page[-1]) if len(lines) > len(page) else ""
        facts = await self._read_facts([line.uid for line in page])
        return [build_summary(line, facts.get(line.uid, RecordFacts())) for line in page], token

    async def _read_facts(self, uids: Sequence[str]) -> dict[str, RecordFacts]:
        return await self._ask(lambda archive: archive.list_facts(uids), dict[str, RecordFacts]())

    async def list_points(self, uid: str, after: int = 0) -> list[Point]:
        """What the job reported after this time, the oldest first."""
        points = await self._ask(lambda archive: archive.list_points(uid), list[Point]())
        return [point for point in points if point.at > after]

    async def list_usage(self, uid: str, since: int = 0) -> list[UsagePoint]:
        """What the job's ranks used from this time on, the oldest first."""
        return await self._ask(lambda archive: archive.list_usage(uid, since), list[UsagePoint]())

    async def purge(self, uid: str) -> None:
        """Deletes the record of a deleted job, with its logs and outputs."""
        directory = self._directory
        assert directory is not None, "a record was found"

        def work() -> None:
            archive = Archive.open(directory)
            try:
                purging.purge(archive, [uid])
            finally:
                archive.close()

        try:
            await asyncio.to_thread(work)
        except OSError as error:
            detail = "the record cannot be deleted: the archive cannot be written"
            raise Problem(503, "no-history", detail, hint="ask an administrator") from error

    async def get(self, namespace: str, uid: str) -> JobRecord:
        """Raises Problem 404 also for a record of another namespace, whose existence the caller may not know."""
        record = await self._ask(lambda archive: archive.find(uid), None)
        if record is None or record.namespace != namespace:
            hint = f"GET /api/v1/history?namespace={namespace} lists those that there are"
            raise not_found(f"there is no record {uid[:64]!r} in the namespace {namespace!r}", hint=hint)
        return record

    async def describe(self, record: JobRecord) -> Object:
        kept = await self._ask(
            lambda archive: logs.list_logs(archive.directory, archive.list_jobsets(record.uid)),
            list[logs.ArchivedLog](),
        )
        document = record.document
        facts = read_facts(document)
        placed = [(place, pod) for pod in list_pods(record) if (place := find_place(pod.raw)) is not None]
        return {
            **build_summary(record, facts),
            "message": describe_outcome(record).message,
            "verdict": build_verdict(read_training_job(document["trainjob"])),
            "workers": [build_worker(place, pod) for place, pod in placed],
            "events": [_build_event(event) for event in list_items(document, "events")[-_EVENTS:]],
            "logs": [_build_log(log) for log in kept],
            "gaps": list(list_items(document, "gaps")),
        }

    async def _ask(self, question: Callable[[Archive], T], nothing: T) -> T:
        directory = self._directory
        if directory is None:
            return nothing

        def work() -> T:
            if not (directory / FILE).exists():
                return nothing
            archive = Archive.open(directory, read_only=True)
            try:
                return question(archive)
            finally:
                archive.close()

        try:
            return await asyncio.to_thread(work)
        except ArchiveError:
            raise Problem(503, "no-history", "the archive cannot be read", hint="ask an administrator") from None


def build_filter(wanted: RecordsWanted) -> Filter:
    """Raises Problem 422 for an invalid token or time."""
    errors = []
    after = None
    try:
        after = read_token(wanted.token)
    except ValueError as error:
        errors.append(FieldProblem(f"is {error}", parameter="continue"))
    times = {}
    for name, text in (("since", wanted.since), ("until", wanted.until)):
        try:
            times[name] = format_time(parse_time(text)) if text else ""
        except (ValueError, OverflowError):
            errors.append(FieldProblem("is no time: write it as 2026-11-15T20:00:00Z", parameter=name))
    if errors:
        raise invalid(errors)
    return Filter(
        namespaces=None if wanted.namespaces is ALL else tuple(wanted.namespaces),
        name=wanted.name,
        state=wanted.state,
        deleted=wanted.deleted,
        # One more, to know whether there is another page.
        limit=wanted.limit + 1,
        after=after,
        runtime=wanted.runtime,
        user=wanted.user,
        since=times["since"],
        before=times["until"],
        words=tuple(wanted.query.lower().split()),
    )


def build_summary(line: RecordLine | JobRecord, facts: RecordFacts) -> Object:
    deletion = line.deletion
    return {
        "uid": line.uid,
        "name": line.name,
        "namespace": line.namespace,
        "kind": line.kind,
        "runtime": line.runtime,
        "state": line.state,
        "created_at": line.created,
        "completed_at": line.finished or None,
        "deleted_at": None if deletion is None else deletion.at,
        "deleted_by": None if deletion is None else deletion.by or None,
        "user": facts.user or None,
        "nodes": facts.nodes,
        "labels": dict(facts.labels),
        "metrics": dict(facts.metrics),
    }


def list_pods(record: JobRecord) -> list[Pod]:
    return [_to_pod(entry) for entry in list_items(record.document, "pods")]


def _to_pod(entry: Fields) -> Pod:
    meta = {"name": entry["name"], "uid": entry["uid"], "labels": read_fields(entry, "labels")}
    return Pod({"metadata": meta, "spec": {"nodeName": entry.get("node") or None}, "status": read_status(entry)})


def _build_event(event: Fields) -> Object:
    return {
        "time": read_text(event, "last") or read_text(event, "first"),
        "reason": read_text(event, "reason"),
        "about": read_text(event, "about"),
        "message": read_text(event, "message"),
        "count": int(event.get("count") or 1),
    }


def _build_log(log: logs.ArchivedLog) -> Object:
    place = log.place
    head = {"attempt": place.attempt, "job": place.job, "worker": place.index}
    return {**head, "container": log.container, "restart": log.restart, "bytes": log.bytes}
