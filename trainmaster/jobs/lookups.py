"""Finds training jobs of all kinds, and the objects that belong to them, through any client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAINING_RUNTIMES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.training import TrainingJob


async def get_training_job(client: Client, namespace: str, name: str) -> TrainingJob:
    """The job with this name, of any kind. Raises NotFound."""
    missing: NotFound | None = None
    for model in TRAINING_KINDS.values():
        try:
            return model(await client.get(model.gvr, name, namespace))
        except NotFound as error:
            missing = missing or error
    assert missing is not None, "there is a kind"
    raise missing


async def list_training_jobs(client: Client, namespace: str = "", label_selector: str = "") -> list[TrainingJob]:
    """Jobs of all kinds that the server has. Raises NotFound if it has none of the kinds."""
    found: list[TrainingJob] = []
    missing: list[NotFound] = []
    for model in TRAINING_KINDS.values():
        try:
            page = await client.list(model.gvr, namespace, ListOptions(label_selector))
        except NotFound as error:
            missing.append(error)
        else:
            found += map(model, page.items)
    if len(missing) == len(TRAINING_KINDS):
        raise missing[0]
    return found


async def find_readable(client: Client, gvr: GVR, name: str, namespace: str = "") -> Object | None:
    """None if it does not exist or the caller may not read it."""
    try:
        return await client.get(gvr, name, namespace)
    except StatusError as error:
        if error.code in (403, 404):
            return None
        raise


async def find_runtime(client: Client, job: TrainingJob) -> Object | None:
    """The current runtime that a job refers to."""
    gvr = find_runtime_gvr(job.runtime) if job.runtime else None
    if gvr is None:
        return None
    namespace = job.namespace if gvr == TRAINING_RUNTIMES else ""
    return await find_readable(client, gvr, job.runtime["name"], namespace)


async def count_nodes(client: Client, jobs: Iterable[TrainingJob]) -> dict[str, int]:
    """The number of nodes by uid of the job: its own, otherwise the runtime's. Without jobs whose runtime no longer
    exists or cannot be read. Each runtime is read once."""
    counts: dict[str, int] = {}
    runtimes: dict[tuple[str, str, str], Object | None] = {}
    for job in jobs:
        if job.nodes is not None:
            counts[job.uid] = job.nodes
            continue
        key = job.namespace, str(job.runtime.get("kind")), str(job.runtime.get("name"))
        if key not in runtimes:
            runtimes[key] = await find_runtime(client, job)
        runtime = runtimes[key]
        if runtime is not None:
            counts[job.uid] = TrainingRuntime(runtime).default_nodes
    return counts


async def find_jobset(client: Client, job: TrainingJob) -> JobSet | None:
    """The JobSet that belongs to this job, checked by uid."""
    if not job.has_jobset:
        return None
    try:
        jobset = JobSet(await client.get(JOB_SETS, job.name, job.namespace))
    except NotFound:
        return None
    return jobset if jobset.is_owned_by(job.uid) else None


class JobParts(NamedTuple):
    """The objects that belong to a job."""

    jobset: JobSet | None
    uids: frozenset[str]
    """The uids of its existing JobSets, or its own if it has none, as in `PodPlace.jobset` of its Pods."""
    pods: list[Object]


async def read_parts(client: Client, job: TrainingJob) -> JobParts:
    """The parts of this job, not of an earlier one with the same name."""
    jobset = await find_jobset(client, job)
    if job.has_jobset and jobset is None:
        return JobParts(None, frozenset(), [])
    uid = job.uid if jobset is None else jobset.uid
    page = await client.list(PODS, job.namespace, ListOptions(label_selector=f"{job.pod_label}={job.name}"))
    pods = [pod for pod in page.items if (place := job.find_place(pod)) is not None and place.jobset == uid]
    return JobParts(jobset, frozenset({uid}), pods)
