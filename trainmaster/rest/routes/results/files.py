"""Files of jobs and of records: what they wrote, and their code (docs/rest.md, "Files of jobs").

Files come from programs of users, so they leave as bytes to be saved: never as a page, a script or a drawing that a
browser would run with the rights of the dashboard.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response

from trainmaster.rest.callers import Caller
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.contract import Backend
from trainmaster.rest.file_answer import MEDIA_TYPE, FileAnswer
from trainmaster.rest.models.files import CodeEntries, DownloadRequest, DownloadTicket, FileEntries
from trainmaster.rest.openapi import Responses
from trainmaster.rest.problems import FieldProblem, invalid
from trainmaster.rest.routes.history import Uid
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace
from trainmaster.rest.services import jobs
from trainmaster.rest.services.files.contract import OpenedFile
from trainmaster.rest.services.files.job_files import OwnerOfFiles
from trainmaster.rest.services.kept_jobs import get_record
from trainmaster.rest.services.namespaces import find_namespace

router = APIRouter(prefix="/api/v1", tags=["files"])
PUBLIC = ("/api/v1/download",)
HARMLESS = frozenset({("POST", "/api/v1/downloads")})
"""It changes nothing: it is a POST so that the ticket is in no log."""

FilePath = Annotated[
    str, Query(description="`path` of the list.", min_length=1, max_length=4096, examples=["train.py"])
]
Preview = Annotated[bool, Query(description="Only what a page may show: the first MiB of a text, PNG, JPEG; else 415.")]
CONTENT: Responses = {
    200: {
        "description": "The bytes of the file.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}, "example": "epoch,loss\n1,0.31\n"}},
        "headers": {
            "x-preview": {"description": "text, png or jpeg, of a preview.", "schema": {"type": "string"}},
            "x-truncated": {"description": "true: a preview that is not whole.", "schema": {"type": "string"}},
        },
    }
}


@router.get("/jobs/{name}/outputs", summary="The files that a job wrote")
async def list_job_outputs(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> FileEntries:
    """Its output directory, and what rank 0 left in its working directory and its home. Also while it runs."""
    owner = await get_owner(caller, name, namespace, kind)
    return FileEntries(**await backend.tools.files.list_outputs(owner))


@router.get("/jobs/{name}/outputs/content", summary="One of these files", responses=CONTENT, response_class=Response)
async def read_job_output(
    name: Name,
    path: FilePath,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    preview: Preview = False,
) -> Response:
    return await _answer(backend, await get_owner(caller, name, namespace, kind), "outputs", path, preview=preview)


@router.get("/jobs/{name}/code", summary="The files of a job's code")
async def list_job_code(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> CodeEntries:
    owner = await get_owner(caller, name, namespace, kind)
    return CodeEntries(**await backend.tools.files.list_code(owner))


@router.get("/jobs/{name}/code/content", summary="One of these files", responses=CONTENT, response_class=Response)
async def read_job_code(
    name: Name,
    path: FilePath,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    preview: Preview = False,
) -> Response:
    return await _answer(backend, await get_owner(caller, name, namespace, kind), "code", path, preview=preview)


@router.get("/history/{uid}/outputs", summary="The files that a job wrote")
async def list_record_outputs(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None
) -> FileEntries:
    owner = await get_record_owner(caller, backend, uid, namespace)
    return FileEntries(**await backend.tools.files.list_outputs(owner))


@router.get("/history/{uid}/outputs/content", summary="One of these files", responses=CONTENT, response_class=Response)
async def read_record_output(
    uid: Uid,
    path: FilePath,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    preview: Preview = False,
) -> Response:
    return await _answer(
        backend, await get_record_owner(caller, backend, uid, namespace), "outputs", path, preview=preview
    )


@router.get("/history/{uid}/code", summary="The files of a job's code")
async def list_record_code(uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> CodeEntries:
    owner = await get_record_owner(caller, backend, uid, namespace)
    return CodeEntries(**await backend.tools.files.list_code(owner))


@router.get("/history/{uid}/code/content", summary="One of these files", responses=CONTENT, response_class=Response)
async def read_record_code(
    uid: Uid,
    path: FilePath,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    preview: Preview = False,
) -> Response:
    return await _answer(
        backend, await get_record_owner(caller, backend, uid, namespace), "code", path, preview=preview
    )


@router.post("/downloads", summary="A ticket, with which a browser saves a file", status_code=201)
async def make_download(
    body: DownloadRequest, caller: CallerOf, backend: BackendOf, namespace: Namespace = None
) -> DownloadTicket:
    """It serves once, within a minute, and without a login: the address of a download has no headers."""
    space = find_namespace(caller, namespace)
    open_file = partial(_open_asked, caller, backend, body, space)
    # What cannot be opened now gets no ticket.
    (await open_file()).stream.close()
    ticket = backend.tools.downloads.issue(caller.identity.user, open_file)
    return DownloadTicket(ticket=ticket.text, expires_at=ticket.expires)


@router.get("/download", summary="Save the file of a ticket", responses=CONTENT, response_class=Response)
async def download(
    backend: BackendOf, ticket: Annotated[str, Query(description="From POST /api/v1/downloads.", max_length=100)]
) -> Response:
    return send(await backend.tools.downloads.redeem(ticket))


async def get_owner(caller: Caller, name: str, namespace: str | None, kind: str | None) -> OwnerOfFiles:
    job = await jobs.get_job(caller.client, find_namespace(caller, namespace), jobs.build_reference(name, kind))
    return OwnerOfFiles(job.raw, caller.client)


async def get_record_owner(caller: Caller, backend: Backend, uid: str, namespace: str | None) -> OwnerOfFiles:
    return OwnerOfFiles((await get_record(caller, backend.history, uid, namespace)).document["trainjob"])


async def _open_asked(caller: Caller, backend: Backend, body: DownloadRequest, namespace: str) -> OpenedFile:
    if (body.job is None) == (body.record is None):
        raise invalid([FieldProblem("either job or record is needed, and not both", pointer="/job")])
    if body.record is not None:
        owner = await get_record_owner(caller, backend, body.record, namespace)
    else:
        owner = await get_owner(caller, body.job or "", namespace, body.kind)
    return await backend.tools.files.open(owner, body.what, body.path)


async def _answer(backend: Backend, owner: OwnerOfFiles, what: str, path: str, *, preview: bool) -> Response:
    files = backend.tools.files
    if not preview:
        return send(await files.open(owner, what, path))
    content, headers = await files.preview(owner, what, path)
    return Response(content, headers={**headers, **_build_headers(path.rpartition("/")[2])}, media_type=MEDIA_TYPE)


def send(file: OpenedFile) -> Response:
    return FileAnswer(file.stream, file.bytes, _build_headers(file.name))


def _build_headers(name: str) -> dict[str, str]:
    """What keeps a browser from running it, wherever it is opened."""
    return {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name[:200], safe='')}",
        "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        "cross-origin-resource-policy": "same-origin",
    }
