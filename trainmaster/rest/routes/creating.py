"""Creating jobs under `/api/v1`: from a JSON body, or from an archive as the body."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from trainmaster.rest.callers import Caller
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.contract import Backend
from trainmaster.rest.models.creating import CREATED, ArchiveQuery, JobCreated, NewJob
from trainmaster.rest.openapi import OpenApi
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.routes.jobs import Key
from trainmaster.rest.services.creation.keys import hash_body, hash_key
from trainmaster.rest.services.creation.new_job_request import check_new_job
from trainmaster.rest.services.creation.new_jobs import Ticket
from trainmaster.rest.services.namespaces import find_namespace

router = APIRouter(prefix="/api/v1", tags=["jobs"])

_ARCHIVES = ("application/gzip", "application/x-gzip", "application/x-tar", "application/zip")
_BODY: OpenApi = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _ARCHIVES},
    }
}


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


def name_parameters(problem: Problem) -> Problem:
    """Adapts a problem to a request whose fields are in the query: only the archive is in the body."""
    if problem.kind != "invalid":
        return problem
    errors = [
        one if one.pointer in ("", "/archive") else FieldProblem(one.detail, parameter=one.pointer.rpartition("/")[2])
        for one in problem.errors
    ]
    return invalid(errors, hint=problem.hint)


async def _create(
    body: NewJob, raw: bytes, caller: Caller, backend: Backend, response: Response, key: str | None
) -> JobCreated:
    space = find_namespace(caller, body.namespace, pointer="/namespace")
    user = body.user if body.user is not None else caller.user_id
    await caller.check_user(user)
    request = await body.to_request(space, user, raw)
    new, ticket = backend.new_jobs, Ticket()
    if key:
        content = {**body.model_dump(), "namespace": space, "user": user, "raw": hashlib.sha256(raw).hexdigest()}
        ticket = Ticket(hash_key(caller, space, f"create {key}"), hash_body(content))
    rules = new.rules
    await check_new_job(
        request,
        max_nodes=rules.max_nodes,
        check_code=rules.check_code,
        code_pointer="/archive" if raw else body.code_pointer,
    )
    made = await new.find_made(caller.client, request, ticket) or await new.create(caller.client, request, ticket)
    response.headers["location"] = f"/api/v1/jobs/{made.name}?namespace={made.namespace}"
    if made.replayed:
        response.headers["idempotency-replayed"] = "true"
    return JobCreated(name=made.name, namespace=made.namespace, uid=made.uid, created_at=made.created_at)
