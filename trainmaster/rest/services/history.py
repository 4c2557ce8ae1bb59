"""Records of jobs for `/api/v1/history`: a filtered and paged list, one complete record, and the kept logs.

Reads the archive in a thread, with its own read-only connection; an installation without an archive has no records.
Access is checked before (`namespaces.check_reader`): it requires permission to read TrainJobs of that namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_status, read_text
from trainmaster.history import logs
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter, RecordLine
from trainmaster.history.kept_logs import KeptLogs
from trainmaster.history.paging import build_token, read_token
from trainmaster.history.record import JobRecord
from trainmaster.jobs.kinds import find_place, read_training_job
from trainmaster.jobs.logs.contract import Kept, NothingKept
from trainmaster.jobs.models.pods import Pod
from trainmaster.rest.problems import FieldProblem, Problem, invalid, not_found
from trainmaster.rest.services.job_reader import describe_record
from trainmaster.rest.services.job_views import build_verdict, build_worker

T = TypeVar("T")
_EVENTS = 500


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    namespace: str
    name: str = ""
    state: str = ""
    deleted: bool | None = None
    limit: int = 100
    token: str = ""


class HistoryService:
    """`directory` is the archive's; None if there is none."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.kept: Kept = NothingKept() if directory is None else KeptLogs(directory)

    async def select(self, wanted: RecordsWanted) -> tuple[list[Object], str]:
        """Newest first, and the token of the next page."""
        try:
            after = read_token(wanted.token)
        except ValueError as error:
            raise invalid([FieldProblem(f"is {error}", parameter="continue")]) from None
        # One more, to know whether there is another page.
        found = Filter(wanted.namespace, wanted.name, wanted.state, wanted.deleted, limit=wanted.limit + 1, after=after)
        lines: list[RecordLine] = await self._ask(lambda archive: archive.select(found), list[RecordLine]())
        page = lines[: wanted.limit]
        token = build_token(page[-1]) if len(lines) > len(page) else ""
        return [build_summary(line) for line in page], token

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
        placed = [(place, pod) for pod in list_pods(record) if (place := find_place(pod.raw)) is not None]
        return {
            **build_summary(record),
            "message": describe_record(record).message,
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


def build_summary(line: RecordLine | JobRecord) -> Object:
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
