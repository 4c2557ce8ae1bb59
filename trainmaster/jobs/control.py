"""Suspends, resumes and restarts jobs through any client; shared by the commands and the REST API.

Each operation is one write with the job's uid, so it never affects a new job with the same name. Restarting a running
job sets an annotation (`api.training.restarts`); a finished job is created again under a new name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainmaster.api.labels import RERUN_OF, RESTART, SUSPENDED_BY_DRAIN
from trainmaster.api.meta import Fields, Object
from trainmaster.api.status import AlreadyExists
from trainmaster.client.contract import Client, PatchType
from trainmaster.jobs.code_maps import create_again
from trainmaster.jobs.manifests import build_manifest
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.training import TrainingJob

_NAMES = 1000


async def set_suspended(client: Client, job: TrainingJob, suspend: bool) -> bool:
    """Returns whether the job had to be changed. A job that a drain suspended then stays suspended after it."""
    is_drained = bool(job.drained_since) and job.is_suspended
    if job.is_suspended is suspend and not is_drained:
        return False
    metadata: Object = {"uid": job.uid}
    if is_drained:
        metadata["annotations"] = {SUSPENDED_BY_DRAIN: None}
    patch = {"metadata": metadata, **job.build_suspension(suspend)}
    await client.patch(job.gvr, job.name, PatchType.MERGE, patch, job.namespace)
    return True


async def ask_for_attempt(
    client: Client, job: TrainingJob, jobset: JobSet | None, annotations: Mapping[str, str] | None = None
) -> int:
    """Requests the next attempt of a job that has not ended; returns its number. `jobset`: None for a kind without
    JobSets. Raises Conflict if the job has changed
    since it was read: the revision ensures that it has not ended and that nobody else has requested an attempt."""
    attempt = job.decide_next_attempt(jobset)
    patch = {"metadata": {**job.head, "annotations": {**(annotations or {}), RESTART: str(attempt)}}}
    await client.patch(job.gvr, job.name, PatchType.MERGE, patch, job.namespace)
    return attempt


def build_rerun(job: Fields, name: str) -> Object:
    """A new job that repeats a finished one."""
    meta = job["metadata"]
    return build_manifest(job, name, {RERUN_OF: f"{meta['name']} {meta['uid']}"})


async def repeat(client: Client, job: TrainingJob, names: Iterable[str]) -> Object | None:
    """Creates the same job under the first of these names that is free; None if none is."""
    for name in names:
        try:
            return await create_again(client, job.gvr, build_rerun(job.raw, name), job.namespace)
        except AlreadyExists:
            continue
    return None


def list_new_names(name: str) -> list[str]:
    """my-job-2, my-job-3, ...; for my-job-2 they start with my-job-3. Names have at most 63 characters."""
    match = re.fullmatch(r"(.+)-(\d{1,6})", name)
    base, first = (match[1], int(match[2]) + 1) if match else (name, 2)
    return [f"{base[: 62 - len(str(number))].rstrip('-')}-{number}" for number in range(first, first + _NAMES)]
