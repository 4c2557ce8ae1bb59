"""Creating jobs under `/api/v1`: from a JSON body, or from an archive as the body."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from trainmaster.rest.all_errors import ValueChecks, build_route_class
from trainmaster.rest.callers import Caller
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.contract import Backend
from trainmaster.rest.models.creating import CREATED, ArchiveQuery, JobCreated, NewJob
from trainmaster.rest.openapi import OpenApi
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.routes.jobs import Key
from trainmaster.rest.services.creation.keys import hash_body, hash_key
from trainmaster.rest.services.creation.new_job_request import NewJobRequest, list_new_job_problems
from trainmaster.rest.services.creation.new_jobs import Ticket
from trainmaster.rest.services.namespaces import find_namespace

_ARCHIVES = ("application/gzip", "application/x-gzip", "application/x-tar", "application/zip")
_BODY: OpenApi = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _ARCHIVES},
    }
}
_RELATED = (frozenset({"framework", "runtime"}), frozenset({"code", "files", "archive", "entrypoint", "command"}))


async def check_new_job(
    body: NewJob, raw: bytes, caller: Caller, backend: Backend, *, is_valid: bool = True
) -> tuple[NewJobRequest, list[FieldProblem]]:
    """The request and everything that is wrong with it. Whether its framework or runtime exists is looked up only if
    the request is invalid anyway (`is_valid`: as far as its schema goes), because a repeated request needs neither."""
    errors: list[FieldProblem] = []
    try:
        space = find_namespace(caller, body.namespace, pointer="/namespace")
    except Problem as problem:
        space, errors = "", [*problem.errors]
    user = body.user if body.user is not None else caller.user_id
    request, rules = await body.to_request(space, user, raw), backend.new_jobs.rules
    errors += await list_new_job_problems(request, max_nodes=rules.max_nodes, check_code=rules.check_code)
    if errors or not is_valid:
        errors += await backend.new_jobs.list_base_problems(caller.client, request)
    return request, errors


async def _list_job_problems(request: Request, body: NewJob) -> list[FieldProblem]:
    return (await check_new_job(body, b"", request.state.caller, request.app.state.backend, is_valid=False))[1]


async def _list_archive_problems(request: Request, asked: ArchiveQuery) -> list[FieldProblem]:
    raw = await request.body()
    _, errors = await check_new_job(
        asked.to_job(), raw, request.state.caller, request.app.state.backend, is_valid=False
    )
    return list(map(_name_parameter, errors))


def name_parameters(problem: Problem) -> Problem:
    """Adapts a problem to a request whose fields are in the query: only the archive is in the body."""
    errors = list(map(_name_parameter, problem.errors))
    if problem.kind == "invalid":
        return invalid(errors, hint=problem.hint)
    return Problem(problem.status, problem.kind, problem.detail, hint=problem.hint, errors=errors)


def _name_parameter(error: FieldProblem) -> FieldProblem:
    name = error.pointer.rpartition("/")[2]
    if name not in ArchiveQuery.model_fields:
        return error if error.pointer == "/archive" else FieldProblem(error.detail)
    return FieldProblem(error.detail, parameter=name)


router = APIRouter(
    prefix="/api/v1",
    tags=["jobs"],
    route_class=build_route_class(
        {
            "create_job": ValueChecks(NewJob, _list_job_problems, related=_RELATED),
            "create_job_from_archive": ValueChecks(ArchiveQuery, _list_archive_problems, related=_RELATED),
        }
    ),
)


@router.post("/jobs", summary="Run training code as a job", status_code=201, responses=CREATED)
async def create_job(
    body: NewJob, caller: CallerOf, backend: BackendOf, response: Response, key: Key = None
) -> JobCreated:
    """With an `Idempotency-Key` it may be sent again: the same body is answered as the first time, another one is
    refused."""
    return await _create(body, b"", caller, backend, response, key)


@router.post(
    "/jobs/from-archive",
    summary="Run an archive of code as a job",
    status_code=201,
    responses=CREATED,
    openapi_extra=_BODY,
)
async def create_job_from_archive(
    request: Request,
    caller: CallerOf,
    backend: BackendOf,
    response: Response,
    asked: Annotated[ArchiveQuery, Query()],
    key: Key = None,
) -> JobCreated:
    """The body is a tar.gz or a zip. What has no parameter here is left at its default; `POST /api/v1/jobs` takes the
    same archive in base64 with everything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _ARCHIVES:
        raise Problem(415, "unsupported-media-type", f"{kind[:64]!r} is no archive", hint=f"send {_ARCHIVES[0]}")
    raw = await request.body()
    if not raw:
        raise invalid([FieldProblem("the body is empty: send a tar.gz or a zip", pointer="/archive")])
    body = asked.to_job()
    try:
        return await _create(body, raw, caller, backend, response, key)
    except Problem as problem:
        raise name_parameters(problem) from None


async def _create(
    body: NewJob, raw: bytes, caller: Caller, backend: Backend, response: Response, key: str | None
) -> JobCreated:
    user = body.user if body.user is not None else caller.user_id
    await caller.check_user(user)
    request, errors = await check_new_job(body, raw, caller, backend)
    if errors:
        raise invalid(errors)
    new, ticket, space = backend.new_jobs, Ticket(), request.basics.namespace
    if key:
        content = {**body.model_dump(), "namespace": space, "user": user, "raw": hashlib.sha256(raw).hexdigest()}
        ticket = Ticket(hash_key(caller, space, f"create {key}"), hash_body(content))
    made = await new.find_made(caller.client, request, ticket) or await new.create(caller.client, request, ticket)
    response.headers["location"] = f"/api/v1/jobs/{made.name}?namespace={made.namespace}"
    if made.replayed:
        response.headers["idempotency-replayed"] = "true"
    return JobCreated(name=made.name, namespace=made.namespace, uid=made.uid, created_at=made.created_at)
