"""Records of jobs for `/api/v1/history`: a filtered and paged list, one complete record, and the kept logs.

Reads the archive in a thread, with its own read-only connection; an installation without an archive has no records.
Access is checked before (`namespaces.check_reader`): it requires permission to read TrainJobs of that namespace.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import orjson

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_status, read_text
from trainmaster.history import logs
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter, RecordLine
from trainmaster.history.kept_logs import KeptLogs
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
        after = _read_token(wanted.token)

        def look(archive: Archive) -> list[RecordLine]:
            # Records with the same time as the last one of the previous page are read again and skipped below.
            before = f"{after[0]}~" if after else ""
            found = Filter(wanted.namespace, wanted.name, wanted.state, wanted.deleted, before)
            return archive.select(found)

        lines: list[RecordLine] = await self._ask(look, list[RecordLine]())
        rest = [line for line in lines if after is None or _is_after(line, after)]
        page = rest[: wanted.limit]
        token = _build_token(page[-1]) if len(rest) > len(page) else ""
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
        pods = [_to_pod(entry) for entry in list_items(document, "pods")]
        placed = [(place, pod) for pod in pods if (place := find_place(pod.raw)) is not None]
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


def _is_after(line: RecordLine, after: tuple[str, str, str]) -> bool:
    """In the archive's order: by end and creation, newest first, then by uid."""
    ended, created, uid = after
    if (line.finished, line.created) != (ended, created):
        return (line.finished, line.created) < (ended, created)
    return line.uid > uid


def _build_token(line: RecordLine) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([line.finished, line.created, line.uid])).decode().rstrip("=")


def _read_token(token: str) -> tuple[str, str, str] | None:
    if not token:
        return None
    try:
        found = orjson.loads(base64.b64decode(token.encode() + b"=" * (-len(token) % 4), b"-_", validate=True))
        ended, created, uid = found
    except (ValueError, binascii.Error, TypeError):
        found = None
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise invalid([FieldProblem("is no token of ours: send `continue` as it was answered", parameter="continue")])
    return ended, created, uid
