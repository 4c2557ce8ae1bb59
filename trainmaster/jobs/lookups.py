"""Finds training jobs of all kinds, and the objects that belong to them, through any client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAINING_RUNTIMES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.kinds import TRAINING_KINDS, split_reference
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.training import TrainingJob

_CLUSTER_WIDE = "ClusterTrainingRuntime"


class AmbiguousName(StatusError):
    """Jobs of several kinds have the same name."""

    def __init__(self, namespace: str, jobs: Sequence[TrainingJob]) -> None:
        names = " or ".join(job.reference for job in jobs)
        kinds = ", ".join(job.gvr.plural for job in jobs)
        text = f'several jobs in namespace {namespace} are named "{jobs[0].name}" ({kinds}): say {names}'
        super().__init__(409, "Ambiguous", text)
        self.jobs = jobs


async def get_training_job(client: Client, namespace: str, reference: str) -> TrainingJob:
    """The job named NAME or KIND/NAME. Raises NotFound, and AmbiguousName if several kinds have a job of this name."""
    try:
        model, name = split_reference(reference)
    except ValueError as error:
        raise NotFound(404, "NotFound", str(error)) from None
    if model is not None:
        return model(await client.get(model.gvr, name, namespace))
    found: list[TrainingJob] = []
    errors: list[StatusError] = []
    for kind in TRAINING_KINDS.values():
        try:
            found.append(kind(await client.get(kind.gvr, name, namespace)))
        except StatusError as error:
            errors.append(_pass_absence(error))
    if len(found) > 1:
        raise AmbiguousName(namespace, found)
    if not found:
        raise errors[0]
    return found[0]


async def list_training_jobs(
    client: Client, namespace: str = "", label_selector: str = "", kind: type[TrainingJob] | None = None
) -> list[TrainingJob]:
    """Jobs of this kind, or of all kinds that the server has and the caller may list. Raises NotFound or Forbidden if
    there is no such kind."""
    found: list[TrainingJob] = []
    errors: list[StatusError] = []
    kinds = [kind] if kind is not None else list(TRAINING_KINDS.values())
    for model in kinds:
        try:
            page = await client.list(model.gvr, namespace, ListOptions(label_selector))
        except StatusError as error:
            errors.append(_pass_absence(error))
        else:
            found += map(model, page.items)
    if len(errors) == len(kinds):
        raise errors[0]
    return found


def _pass_absence(error: StatusError) -> StatusError:
    """On a cluster some kinds may not exist, or belong to others. Raises all other errors."""
    if error.code not in (403, 404):
        raise error
    return error


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


def uses_runtime(job: TrainingJob, runtime: TrainingRuntime) -> bool:
    kind = "TrainingRuntime" if runtime.namespace else _CLUSTER_WIDE
    return (
        job.runtime.get("name") == runtime.name
        and job.runtime.get("kind", _CLUSTER_WIDE) == kind
        and runtime.namespace in ("", job.namespace)
    )


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
