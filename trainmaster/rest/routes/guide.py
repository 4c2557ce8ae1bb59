"""The guide's API: create, status, logs, delete. Paths, fields and values are those of its clients (docs/rest.md)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from trainmaster.rest.all_errors import ValueChecks, build_route_class
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.contract import Backend
from trainmaster.rest.models.trainjobs import CreateAnswer, CreateRequest, DeleteAnswer, LogsAnswer, StatusAnswer
from trainmaster.rest.problems import FieldProblem
from trainmaster.rest.services.deleting import delete_job


async def _list_problems(request: Request, body: CreateRequest) -> list[FieldProblem]:
    backend: Backend = request.app.state.backend
    return await backend.jobs.list_problems(body.to_request())


router = APIRouter(
    prefix="/api/trainjob",
    tags=["jobs"],
    route_class=build_route_class({"create_trainjob": ValueChecks(CreateRequest, _list_problems)}),
)

Name = Annotated[str, Path(description="trainjob_name of the create's answer.", max_length=253)]
Namespace = Annotated[str, Query(description="The namespace of the create.", min_length=1, max_length=63)]
Worker = Annotated[int, Query(description="Which worker, from 0 on.", ge=0, le=100_000)]
Tail = Annotated[int | None, Query(description="Only so many lines from the end.", ge=0, le=1_000_000)]

WithScript = Annotated[bool, Query(description="The user's newest code too, if no other job needs it.")]


@router.post("/create", summary="Run training code as a job")
async def create_trainjob(body: CreateRequest, caller: CallerOf, backend: BackendOf) -> CreateAnswer:
    await caller.check_user(body.user_id)
    made = (await backend.jobs.create(caller.client, body.to_request()))["metadata"]
    return CreateAnswer(trainjob_name=made["name"], namespace=made["namespace"], created_at=made["creationTimestamp"])


@router.get("/{name}/status", summary="How far is it?")
async def read_trainjob_status(name: Name, namespace: Namespace, caller: CallerOf, backend: BackendOf) -> StatusAnswer:
    found = await backend.reader.get_state(caller.client, namespace, name)
    return StatusAnswer(
        trainjob_name=found.name,
        state=found.state,
        message=found.message,
        created_at=found.created_at,
        completed_at=found.completed_at,
    )


@router.get("/{name}/logs", summary="What did a worker print?")
async def read_trainjob_logs(
    name: Name,
    namespace: Namespace,
    caller: CallerOf,
    backend: BackendOf,
    response: Response,
    worker: Worker = 0,
    tail_lines: Tail = None,
) -> LogsAnswer:
    """A log that is longer than an answer holds (8 MiB) lacks its beginning; the header x-log-truncated says so."""
    found = await backend.reader.get_log(caller.client, namespace, name, worker, tail_lines)
    response.headers["x-log-truncated"] = "true" if found.truncated else "false"
    return LogsAnswer(trainjob_name=found.name, worker=found.worker, logs=found.text)


@router.delete("/{name}", summary="Delete a job; its workers end, its logs stay in history")
async def delete_trainjob(
    name: Name,
    namespace: Namespace,
    caller: CallerOf,
    backend: BackendOf,
    delete_user_configmap: Annotated[
        bool, Query(description="The user's newest code too, if no job needs it.")
    ] = False,
) -> DeleteAnswer:
    done = await delete_job(caller.client, backend.reader, namespace, name, with_user_script=delete_user_configmap)
    return DeleteAnswer(trainjob_name=name, namespace=namespace, message=done.message)
