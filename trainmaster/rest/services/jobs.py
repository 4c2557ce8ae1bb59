"""Jobs for `/api/v1`: list with filters and pages, read, suspend, resume, restart. Uses the caller's client.

No state is kept between requests. A filter that the API server does not support (the state) is applied here, so a page
may be shorter than requested; only an answer without `continue` is the last.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import FRAMEWORK, REST_FRAMEWORK, USER
from trainmaster.api.lifecycle import policy as lifecycle
from trainmaster.api.lifecycle.policy import read_policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import Conflict, NotFound, StatusError
from trainmaster.api.training.steps import read_framework
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.control import ask_for_attempt, set_suspended
from trainmaster.jobs.kinds import TRAINING_KINDS, find_kind, split_reference
from trainmaster.jobs.lookups import (
    find_jobset,
    find_readable,
    find_runtime,
    get_training_job,
    read_parts,
)
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.problems import FieldProblem, Problem, invalid, not_found
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.rerunning import rerun
from trainmaster.rest.services.job_reader import count_workers
from trainmaster.rest.services.job_views import JobFacts, build_detail, build_listed, read_state

_TRIES = 5
_LOOKED_AT = 5_000
"""The maximum number of jobs that one answer examines; the next page continues from there."""
_OF = "~"
"""The separator between the kind and the server's own token."""
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
RESTART_KEY = "trainmaster.dev/restart-key"
"""Annotation on jobs, set by the REST API: the hashed Idempotency-Key of the last requested restart."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    namespace: str
    """"" is all."""
    kind: str = ""
    """"" is all."""
    state: str | None = None
    framework: str | None = None
    runtime: str | None = None
    user: str | None = None
    labels: Sequence[str] = ()
    """Each KEY or KEY=VALUE."""
    limit: int = 100
    token: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    items: list[Object]
    token: str = ""


async def list_jobs(client: Client, wanted: JobFilter) -> JobPage:
    """Lists one kind after the other; a token contains the kind it is for."""
    selector, looked_at = build_selector(wanted), 0
    found: list[Object] = []
    plural, _, token = wanted.token.rpartition(_OF)
    chosen = get_kind(wanted.kind) if wanted.kind else None
    kinds = list(TRAINING_KINDS.values()) if chosen is None else [chosen]
    most = len(kinds)
    while kinds and plural not in ("", kinds[0].gvr.plural):
        del kinds[0]
    if not kinds:
        raise invalid([FieldProblem("is no token of ours: send `continue` as it was answered", parameter="continue")])
    while kinds and len(found) < wanted.limit and looked_at < _LOOKED_AT:
        options = ListOptions(selector, limit=wanted.limit - len(found), continue_token=token)
        try:
            page = await client.list(kinds[0].gvr, wanted.namespace, options)
        except StatusError as error:
            if error.code not in (403, 404) or len(kinds) == most:
                raise
            del kinds[0]  # a cluster may not have the kind, or the caller no right to it
            continue
        looked_at += len(page.items)
        found += [build_listed(job) for job in map(kinds[0], page.items) if _fits(job, wanted)]
        token = page.continue_token
        if not token:
            del kinds[0]
    return JobPage(found, f"{kinds[0].gvr.plural}{_OF}{token}" if kinds else "")


def build_selector(wanted: JobFilter) -> str:
    """Raises Problem 422 for an invalid label, so that no value can be read as more than one requirement."""
    parts, errors = [], []
    for name, key, value in (("user", USER, wanted.user), ("framework", REST_FRAMEWORK, wanted.framework)):
        if value is None:
            continue
        if not value or not _VALUE.fullmatch(value):
            errors.append(FieldProblem("is no value of a label: letters, digits, '-', '_', '.'", parameter=name))
        parts.append(f"{key}={value}")
    for label in wanted.labels:
        key, equals, value = label.partition("=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            errors.append(FieldProblem(f"{label[:60]!r} is no label: write KEY or KEY=VALUE", parameter="label"))
        parts.append(f"{key}{equals}{value}")
    if errors:
        raise invalid(errors)
    return ",".join(parts)


def _fits(job: TrainingJob, wanted: JobFilter) -> bool:
    return wanted.state in (None, read_state(job).word) and wanted.runtime in (None, job.runtime.get("name", ""))


def get_kind(word: str) -> type[TrainingJob]:
    """Raises Problem 422 for an unknown kind."""
    model = find_kind(word)
    if model is None:
        known = ", ".join(TRAINING_KINDS)
        raise invalid([FieldProblem(f"{word[:64]!r} is no kind of job: one of {known}", parameter="kind")])
    return model


def build_reference(name: str, kind: str | None) -> str:
    """What a job is found by: its name, with its kind if that is given. Raises Problem 422 for an unknown kind."""
    return f"{get_kind(kind).gvr.plural}/{name}" if kind else name


async def get_job(client: Client, namespace: str, reference: str) -> TrainingJob:
    """Raises Problem 404, which says where to find a deleted job."""
    try:
        return await get_training_job(client, namespace, reference)
    except NotFound:
        _, name = split_reference(reference)
        kept = f"GET /api/v1/history?name={quote(name[:64], errors='replace')}&namespace={namespace}"
        raise not_found(
            f"there is no job {name[:64]!r} in the namespace {namespace!r}",
            hint=f"{kept} tells whether it was deleted",
        ) from None


async def read_job(client: Client, namespace: str, reference: str) -> Object:
    return build_detail(await collect(client, await get_job(client, namespace, reference)))


async def collect(client: Client, job: TrainingJob) -> JobFacts:
    runtime, config, parts = await asyncio.gather(
        find_runtime(client, job),
        find_readable(client, CONFIG_MAPS, lifecycle.NAME, lifecycle.NAMESPACE),
        read_parts(client, job),
    )
    pods = [Pod(pod) for pod in parts.pods]
    return JobFacts(job, runtime, job.read_attempts(parts.jobset), pods, read_policy(config).policy)


async def suspend_job(client: Client, namespace: str, reference: str, suspend: bool) -> Object:
    job = await get_job(client, namespace, reference)
    name = job.name
    if job.is_finished:
        word, verb = read_state(job).word, "suspend" if suspend else "resume"
        hint = f"POST /api/v1/jobs/{name}/restart runs it again"
        raise Problem(409, "ended", f"{name} has ended ({word}): there is nothing to {verb}", hint=hint)
    _check_staying(job)
    await set_suspended(client, job, suspend)
    return await read_job(client, namespace, job.reference)


def _check_staying(job: TrainingJob) -> None:
    if job.is_deleting:
        raise Problem(409, "deleting", f"{job.name} is being deleted", hint="create it again")


@dataclass(frozen=True, slots=True)
class Restarted:
    name: str
    """The job that runs now: a new one if the old one had ended."""
    attempt: int
    created: bool


async def restart_job(
    client: Client, namespace: str, reference: str, *, new_name: str | None = None, key: str = ""
) -> Restarted:
    """Retries if the job changes in the meantime, because it may have ended."""
    for _ in range(_TRIES):
        job = await get_job(client, namespace, reference)
        name = job.name
        _check_staying(job)
        if job.is_finished:
            made = await rerun(client, job, new_name, key)
            return Restarted(made["metadata"]["name"], 0, True)
        _check_running(job, new_name)
        asked, _, attempt = job.annotations.get(RESTART_KEY, "").partition(" ")
        if key and asked == key:
            return Restarted(name, find_count(attempt) or 0, False)
        try:
            return Restarted(name, await _ask(client, job, key), False)
        except Conflict:
            continue
    raise Problem(409, "conflict", f"{reference} changes all the time", hint="send it again in a moment")


async def _ask(client: Client, job: TrainingJob, key: str) -> int:
    jobset = await find_jobset(client, job)
    noted = {RESTART_KEY: f"{key} {job.decide_next_attempt(jobset)}"} if key else None
    return await ask_for_attempt(client, job, jobset, noted)


def _check_running(job: TrainingJob, new_name: str | None) -> None:
    if job.is_suspended:
        hint = f"POST /api/v1/jobs/{job.name}/resume starts its processes anew"
        raise Problem(409, "suspended", f"{job.name} is suspended", hint=hint)
    if new_name is not None:
        raise invalid([FieldProblem(f"{job.name} has not ended and keeps its name: leave it out", pointer="/name")])


def check_name(name: str | None) -> str | None:
    """Raises Problem 422 for an invalid job name."""
    if name is not None and (problem := naming.find_name_problem(name)):
        raise invalid([FieldProblem(problem, pointer="/name")])
    return name


async def check_worker(client: Client, job: TrainingJob, worker: int | None, *, most: int) -> None:
    """Raises Problem 422 for a worker that the job does not have, or if all workers are requested and there are too
    many."""
    count = await count_workers(client, job)
    if worker is None and count > most:
        text = f"this job has {count} workers, and at most {most} can be followed together: choose one"
        raise invalid([FieldProblem(text, parameter="worker")])
    if worker is not None and worker >= count:
        there = "one, 0" if count == 1 else f"{count}, 0 to {count - 1}"
        raise invalid([FieldProblem(f"there is no worker {worker}; this job has {there}", parameter="worker")])


async def list_runtimes(client: Client, namespace: str) -> list[Object]:
    """The runtimes of the cluster and of the namespace."""
    wide, narrow = await asyncio.gather(
        _list(client, CLUSTER_TRAINING_RUNTIMES, ""), client.list(TRAINING_RUNTIMES, namespace)
    )
    return [build_runtime(TrainingRuntime(runtime)) for runtime in (*wide, *narrow.items)]


async def _list(client: Client, gvr: GVR, namespace: str) -> list[Object]:
    try:
        return (await client.list(gvr, namespace)).items
    except StatusError as error:
        if error.code == 403:
            return []
        raise


def build_runtime(runtime: TrainingRuntime) -> Object:
    return {
        "name": runtime.name,
        "kind": runtime.kind,
        "namespace": runtime.namespace or None,
        "framework": runtime.labels.get(FRAMEWORK),
        "policy": read_framework(runtime.raw)[0] or None,
        "nodes": runtime.nodes,
        "max_restarts": runtime.max_restarts,
    }
