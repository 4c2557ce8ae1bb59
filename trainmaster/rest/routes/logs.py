"""Logs of `/api/v1` as a whole: windows anywhere in them, a search, a file; of jobs and of records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response, StreamingResponse

from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.jobs.logs.windows.merged import MergedLog, Wish, parse_address
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.contract import Backend
from trainmaster.rest.models.logs import AddressedLine, LogHits, LogWindow
from trainmaster.rest.openapi import Responses
from trainmaster.rest.problems import FieldProblem, invalid
from trainmaster.rest.routes.history import Uid
from trainmaster.rest.routes.jobs import Attempt, JobKind, Name, Namespace, Worker
from trainmaster.rest.services.jobs import build_reference, get_job
from trainmaster.rest.services.kept_jobs import get_record
from trainmaster.rest.services.log_windows import Sought, build_hit, build_line
from trainmaster.rest.services.namespaces import find_namespace

router = APIRouter(prefix="/api/v1")

At = Annotated[
    str,
    Query(
        description="Where: `start`, `end`, a share of all bytes (`50%`), a time (RFC 3339, UTC), or a line or place "
        "of an answer (ATTEMPT~JOB~WORKER~TIME~SAME).",
        max_length=400,
        examples=["end"],
    ),
]
Lines = Annotated[int, Query(description="So many lines before that place.", ge=0, le=5_000)]
LinesAfter = Annotated[int, Query(description="So many lines after it.", ge=0, le=5_000)]
Q = Annotated[str, Query(description="What to search for.", min_length=1, max_length=1_000, examples=["loss nan"])]
IsPattern = Annotated[bool, Query(description="It is a pattern (RE2); otherwise a text, in upper or lower case.")]

_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)%")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_TEXT = "2026-11-15T20:00:01.000000000Z node/0 loss 0.31\n"
_FILE: Responses = {
    200: {
        "description": "A line for each line, with its time and worker, and its attempt if that is not the first.",
        "content": {"application/octet-stream": {"schema": {"type": "string"}, "example": _TEXT}},
    }
}


def parse_wish(at: str, before: int, after: int) -> Wish:
    """Raises Problem 422."""
    if at in ("start", "end"):
        return Wish(before, after, is_end=at == "end")
    if (share := _SHARE.fullmatch(at)) and float(share[1]) <= 100:
        return Wish(before, after, share=float(share[1]) / 100)
    if _TIME.fullmatch(at):
        return Wish(before, after, time=at)
    try:
        return Wish(before, after, address=parse_address(at))
    except ValueError:
        hint = "use start, end, 50%, 2026-11-15T20:00:00Z, or `begin`, `end` or a line of an answer"
        raise invalid([FieldProblem(f"{at[:100]!r} is no place in a log", parameter="at")], hint=hint) from None


@dataclass(frozen=True, slots=True)
class OpenLog:
    name: str
    """Of the job, or the uid of the record."""
    namespace: str
    log: MergedLog


async def open_job_log(
    name: Name,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    worker: Worker = None,
    attempt: Attempt = None,
) -> OpenLog:
    space = find_namespace(caller, namespace)
    job = await get_job(caller.client, space, build_reference(name, kind))
    wanted = JobLogOptions(attempt=attempt, rank=worker)
    return OpenLog(name, space, await backend.log_windows.open_job(caller, job, wanted, backend.history.kept))


async def open_record_log(
    uid: Uid,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    worker: Worker = None,
    attempt: Attempt = None,
) -> OpenLog:
    record = await get_record(caller, backend.history, uid, namespace)
    wanted = JobLogOptions(attempt=attempt, rank=worker)
    log = await backend.log_windows.open_record(record, wanted, backend.history.kept)
    return OpenLog(record.name, record.namespace, log)


JobLog = Annotated[OpenLog, Depends(open_job_log)]
RecordLog = Annotated[OpenLog, Depends(open_record_log)]


async def _read(opened: OpenLog, backend: Backend, at: str, before: int, after: int) -> LogWindow:
    part = await backend.log_windows.read(opened.log, parse_wish(at, before, after))
    lines = part.lines
    end = lines[-1].address if lines else None
    return LogWindow(
        name=opened.name,
        namespace=opened.namespace,
        lines=[AddressedLine(**build_line(line)) for line in lines],
        before=part.before,
        begin=str(lines[0].address) if lines else at,
        end=str(end._replace(number=end.number + 1)) if end else at,
        begin_share=part.begin,
        end_share=part.end,
        is_first=part.is_first,
        is_last=part.is_last,
        bytes=opened.log.size,
    )


async def _search(opened: OpenLog, backend: Backend, q: str, regex: bool) -> LogHits:
    hits = await backend.log_windows.search(opened.log, Sought(q, regex))
    found = [AddressedLine(**build_hit(hit)) for hit in hits.found]
    return LogHits(name=opened.name, namespace=opened.namespace, hits=found, stopped=hits.stopped or None)


def _answer_file(opened: OpenLog, backend: Backend) -> Response:
    # Programs print what they like: a browser must neither show nor run it.
    headers = {
        "content-disposition": f'attachment; filename="{opened.name}.log"',
        "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    }
    lines = backend.log_windows.print_all(opened.log)
    return StreamingResponse(lines, headers=headers, media_type="application/octet-stream")


@router.get("/jobs/{name}/logs/window", summary="Lines around any place in its logs", tags=["jobs"])
async def read_job_window(
    opened: JobLog, backend: BackendOf, at: At = "end", before: Lines = 100, after: LinesAfter = 100
) -> LogWindow:
    """Quick however long the logs are. At most 2 MiB before and after the place."""
    return await _read(opened, backend, at, before, after)


@router.get("/jobs/{name}/logs/search", summary="Lines of its logs that have a text or match a pattern", tags=["jobs"])
async def search_job_logs(opened: JobLog, backend: BackendOf, q: Q, regex: IsPattern = False) -> LogHits:
    """Searches everything, for at most 5 seconds and 10,000 lines. Colours are left out before."""
    return await _search(opened, backend, q, regex)


@router.get(
    "/jobs/{name}/logs/download", summary="Its logs as a file", responses=_FILE, response_class=Response, tags=["jobs"]
)
async def download_job_logs(opened: JobLog, backend: BackendOf) -> Response:
    return _answer_file(opened, backend)


@router.get("/history/{uid}/logs/window", summary="Lines around any place in its logs", tags=["history"])
async def read_record_window(
    opened: RecordLog, backend: BackendOf, at: At = "end", before: Lines = 100, after: LinesAfter = 100
) -> LogWindow:
    return await _read(opened, backend, at, before, after)


@router.get(
    "/history/{uid}/logs/search", summary="Lines of its logs that have a text or match a pattern", tags=["history"]
)
async def search_record_logs(opened: RecordLog, backend: BackendOf, q: Q, regex: IsPattern = False) -> LogHits:
    return await _search(opened, backend, q, regex)


@router.get(
    "/history/{uid}/logs/download",
    summary="Its logs as a file",
    responses=_FILE,
    response_class=Response,
    tags=["history"],
)
async def download_record_logs(opened: RecordLog, backend: BackendOf) -> Response:
    return _answer_file(opened, backend)
