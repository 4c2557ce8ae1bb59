"""One runtime for `/api/v1`: what it offers, and which jobs use it, of those that the caller may read."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import StatusError
from trainmaster.api.training.steps import MAIN_CONTAINER, find_ancestor, find_container, list_containers
from trainmaster.api.training.yaml_text import render
from trainmaster.jobs.lookups import uses_runtime
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.rest.callers import Caller
from trainmaster.rest.problems import not_found
from trainmaster.rest.services.job_views import read_state
from trainmaster.rest.services.jobs import build_runtime
from trainmaster.rest.services.namespaces import check_reader, find_namespace, list_readable

CLUSTER_WIDE, OF_NAMESPACE = "ClusterTrainingRuntime", "TrainingRuntime"
MOST_USERS = 100


async def read_runtime(caller: Caller, name: str, namespace: str | None, kind: str | None) -> Object:
    """Without `kind` that of the cluster, or else that of the namespace. Raises Problem 404."""
    is_wide = kind != OF_NAMESPACE
    space = "" if is_wide and namespace is None and caller.tenant is None else find_namespace(caller, namespace)
    if space:
        await check_reader(caller, space)
    runtime = TrainingRuntime(await _get(caller, name, space, kind))
    jobs = await _list_users(caller, runtime)
    active = [job for job in jobs if not job.is_finished]
    return {
        **build_runtime(runtime),
        "created_at": runtime.created_at,
        "labels": dict(runtime.labels),
        "steps": [_build_step(job) for job in runtime.replicated_jobs],
        "users": [_build_user(job) for job in sort_users(jobs)[:MOST_USERS]],
        "active": len(active),
        "ended": len(jobs) - len(active),
        "yaml": render(_drop_bookkeeping(runtime.raw)),
    }


async def _get(caller: Caller, name: str, space: str, kind: str | None) -> Object:
    places: list[tuple[GVR, str]] = []
    if kind != OF_NAMESPACE:
        places.append((CLUSTER_TRAINING_RUNTIMES, ""))
    if kind != CLUSTER_WIDE and space:
        places.append((TRAINING_RUNTIMES, space))
    refusal: StatusError | None = None
    for gvr, place in places:
        try:
            return await caller.client.get(gvr, name, place)
        except StatusError as error:
            if error.code == 403:
                refusal = error
            elif error.code != 404:
                raise
    if refusal is not None:
        raise refusal
    where = f" in the namespace {space!r}" if kind == OF_NAMESPACE else ""
    raise not_found(f"there is no runtime {name[:64]!r}{where}", hint="GET /api/v1/runtimes lists them")


async def _list_users(caller: Caller, runtime: TrainingRuntime) -> list[TrainJob]:
    """Of the jobs that the caller may read."""
    readable = await list_readable(caller)
    if runtime.namespace:
        readable = [runtime.namespace]
    found: list[TrainJob] = []
    for space in readable:
        jobs = map(TrainJob, (await caller.client.list(TRAIN_JOBS, space)).items)
        found += [job for job in jobs if uses_runtime(job, runtime)]
    return found


def sort_users(jobs: Iterable[TrainJob]) -> list[TrainJob]:
    """Those that have not ended first, the newest first."""
    newest = sorted(jobs, key=lambda job: (job.created_at, job.uid), reverse=True)
    return sorted(newest, key=lambda job: job.is_finished)


def _build_step(job: Fields) -> Object:
    step = find_ancestor(job)
    container = find_container(job, MAIN_CONTAINER[step]) if step is not None and step in MAIN_CONTAINER else None
    container = container or next(iter(list_containers(job)), {})
    return {
        "name": job["name"],
        "step": step,
        "image": container.get("image"),
        "depends_on": [read_text(entry, "name") for entry in list_items(job, "dependsOn")],
    }


def _build_user(job: TrainJob) -> Object:
    return {
        "namespace": job.namespace,
        "name": job.name,
        "kind": "TrainJob",
        "uid": job.uid,
        "state": read_state(job).word,
        "created_at": job.created_at,
    }


def _drop_bookkeeping(obj: Fields) -> Object:
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}
