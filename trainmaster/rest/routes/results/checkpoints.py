"""Checkpoints of jobs and of records (docs/rest.md, "Checkpoints"). Their files leave as those of `files`."""

from __future__ import annotations

from fastapi import APIRouter, Response

from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.checkpoints import CheckpointEntries
from trainmaster.rest.routes.history import Uid
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace
from trainmaster.rest.routes.results.files import CONTENT, FilePath, get_owner, get_record_owner, send

router = APIRouter(prefix="/api/v1", tags=["checkpoints"])


@router.get("/jobs/{name}/checkpoints", summary="The checkpoints of a job")
async def list_job_checkpoints(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> CheckpointEntries:
    """Those in its checkpoint directory, and those that are found by their format in its outputs. Also while it
    runs."""
    owner = await get_owner(caller, name, namespace, kind)
    return CheckpointEntries(**await backend.tools.files.list_checkpoints(owner))


@router.get(
    "/jobs/{name}/checkpoints/content", summary="One file of one of them", responses=CONTENT, response_class=Response
)
async def read_job_checkpoint(
    name: Name,
    path: FilePath,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
) -> Response:
    owner = await get_owner(caller, name, namespace, kind)
    return send(await backend.tools.files.open(owner, "checkpoints", path))


@router.get("/history/{uid}/checkpoints", summary="The checkpoints of a job")
async def list_record_checkpoints(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None
) -> CheckpointEntries:
    owner = await get_record_owner(caller, backend, uid, namespace)
    return CheckpointEntries(**await backend.tools.files.list_checkpoints(owner))


@router.get(
    "/history/{uid}/checkpoints/content", summary="One file of one of them", responses=CONTENT, response_class=Response
)
async def read_record_checkpoint(
    uid: Uid, path: FilePath, caller: CallerOf, backend: BackendOf, namespace: Namespace = None
) -> Response:
    owner = await get_record_owner(caller, backend, uid, namespace)
    return send(await backend.tools.files.open(owner, "checkpoints", path))
