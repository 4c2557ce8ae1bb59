"""Manifests under `/api/v1`: what a job was made of, what would become of new ones, and sending them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from trainmaster.api.meta import Object
from trainmaster.jobs.submission.rendering import render_objects
from trainmaster.rest.callers import Caller
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.contract import Backend
from trainmaster.rest.models.manifests import (
    MANIFEST_EXAMPLE,
    CheckAnswer,
    CheckRequest,
    ManifestsText,
    SubmissionAnswer,
)
from trainmaster.rest.openapi import Responses
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.routes.creating import check_new_job
from trainmaster.rest.routes.history import Uid
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace
from trainmaster.rest.services import jobs
from trainmaster.rest.services.creation.job_manifests import build_job_manifests, build_record_manifests
from trainmaster.rest.services.creation.new_job_request import NewJobRequest
from trainmaster.rest.services.creation.submitting import read_submission, submit
from trainmaster.rest.services.kept_jobs import get_record
from trainmaster.rest.services.namespaces import check_reader, find_namespace

router = APIRouter(prefix="/api/v1", tags=["manifests"])
HARMLESS = frozenset({("POST", "/api/v1/check")})

NewName = Annotated[str | None, Query(description="For a copy: its name. Default: that of the job.", max_length=63)]
DryRun = Annotated[bool, Query(description="The server only says what it would do.")]
Start = Annotated[bool, Query(description="Also ask when the jobs would start, which takes longer.")]
_YAML = "application/yaml"
_MANIFEST: Responses = {
    200: {
        "description": "The documents, in the order in which they can be created.",
        "content": {_YAML: {"schema": {"type": "string"}, "example": MANIFEST_EXAMPLE}},
    }
}


@router.get(
    "/jobs/{name}/manifest", summary="A job as YAML that creates it again", responses=_MANIFEST, response_class=Response
)
async def read_job_manifest(
    name: Name,
    caller: CallerOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    new_name: NewName = None,
) -> Response:
    """Without its status and what the server has added; with its runtime if that was derived for it, and with its code
    if that is in a ConfigMap."""
    chosen = jobs.check_name(new_name)
    job = await jobs.get_job(caller.client, find_namespace(caller, namespace), jobs.build_reference(name, kind))
    return _answer(await build_job_manifests(caller.client, job, chosen or ""))


@router.get(
    "/history/{uid}/manifest",
    summary="A job as YAML that creates it again",
    responses=_MANIFEST,
    response_class=Response,
)
async def read_record_manifest(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, new_name: NewName = None
) -> Response:
    chosen = jobs.check_name(new_name)
    record = await get_record(caller, backend.history, uid, namespace)
    code = await backend.tools.files.find_kept_code(record.uid)
    return _answer(build_record_manifests(record, code, chosen or ""))


def _answer(objects: list[Object]) -> Response:
    return Response(render_objects(objects), media_type=_YAML)


@router.post("/check", summary="What would become of manifests, or of a new job")
async def check_manifests(
    body: CheckRequest, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, start: Start = False
) -> CheckAnswer:
    """As `trainmaster check`: nothing is created, and nothing is refused with an error. A `job` is composed as by POST
    /api/v1/jobs, and what it would create is checked."""
    if (body.manifests is None) == (body.job is None):
        raise invalid([FieldProblem("either manifests or job is needed, and not both", pointer="/manifests")])
    text, problems, space = body.manifests, list[FieldProblem](), ""
    if body.job is not None:
        asked = body.job if body.job.namespace is not None else body.job.model_copy(update={"namespace": namespace})
        request, problems = await check_new_job(asked, b"", caller, backend)
        space = request.basics.namespace
        text, problems = await _preview(backend, caller, request, problems)
    else:
        space = find_namespace(caller, namespace)
    if space:
        await check_reader(caller, space)
    items = await backend.tools.check(caller.client, space, text, start) if text else []
    return CheckAnswer(
        ok=not problems and all(item["ok"] for item in items),
        items=items,  # type: ignore[arg-type]  # pydantic makes models of them
        problems=[problem.to_data() for problem in problems],  # type: ignore[misc]  # as above
        manifests=text if body.job is not None else None,
    )


async def _preview(
    backend: Backend, caller: Caller, request: NewJobRequest, problems: list[FieldProblem]
) -> tuple[str | None, list[FieldProblem]]:
    """What the request would create, as YAML; None if something is wrong with it, or it is too large for that."""
    if problems:
        return None, problems
    try:
        objects = await backend.new_jobs.preview(caller.client, request)
    except Problem as problem:
        return None, [*problem.errors] or [FieldProblem(problem.detail)]
    return render_objects(objects) if objects else None, []


@router.post("/manifests", summary="Create what manifests hold")
async def submit_manifests(
    body: ManifestsText, caller: CallerOf, namespace: Namespace = None, dry_run: DryRun = False
) -> SubmissionAnswer:
    """As `trainmaster submit`: training jobs are created, what they need is created or changed before them."""
    if namespace is not None:
        find_namespace(caller, namespace)
    submission = await read_submission(body.manifests, namespace, caller.tenant, dry_run=dry_run)
    done = await submit(caller.client, submission)
    return SubmissionAnswer(dry_run=dry_run, items=done)  # type: ignore[arg-type]  # pydantic makes models of them
