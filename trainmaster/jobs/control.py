"""Suspending, resuming and restarting a TrainJob through any client: what the commands and the REST API share.

Each is one write that carries the TrainJob's uid, so that a job which was made anew under the name meanwhile is not
meant. A restart of a job that runs is one annotation (`api.training.restarts`); one that has ended is made again under
a new name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainmaster.api.labels import RERUN_OF, RESTART
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import AlreadyExists
from trainmaster.api.training.restarts import decide_next
from trainmaster.client.contract import Client, PatchType
from trainmaster.jobs.manifests import build_manifest
from trainmaster.jobs.models.objects import ObjectModel

_NAMES = 1000


async def set_suspended(client: Client, job: Object, suspend: bool) -> bool:
    """Whether anything had to be changed."""
    meta = job["metadata"]
    if bool(job["spec"].get("suspend")) is suspend:
        return False
    patch = {"metadata": {"uid": meta["uid"]}, "spec": {"suspend": suspend}}
    await client.patch(TRAIN_JOBS, meta["name"], PatchType.MERGE, patch, meta["namespace"])
    return True


async def ask_for_attempt(
    client: Client, job: Object, jobset: Object | None, annotations: Mapping[str, str] | None = None
) -> int:
    """Asks for the next attempt of a job that has not ended; its number. Conflict when the job has changed since it
    was read: the revision proves that it has not ended, and that nobody else just asked."""
    meta = job["metadata"]
    attempt = decide_next(job, jobset)
    patch = {"metadata": {**ObjectModel(job).head, "annotations": {**(annotations or {}), RESTART: str(attempt)}}}
    await client.patch(TRAIN_JOBS, meta["name"], PatchType.MERGE, patch, meta["namespace"])
    return attempt


def build_rerun(job: Object, name: str) -> Object:
    """The TrainJob that repeats one that has ended."""
    meta = job["metadata"]
    return build_manifest(job, name, {RERUN_OF: f"{meta['name']} {meta['uid']}"})


async def repeat(client: Client, job: Object, names: Iterable[str]) -> Object | None:
    """The same job again under the first of these names that is free; None when none is."""
    for name in names:
        try:
            return await client.create(TRAIN_JOBS, build_rerun(job, name), job["metadata"]["namespace"])
        except AlreadyExists:
            continue
    return None


def list_new_names(name: str) -> list[str]:
    """my-job-2, my-job-3, ...; after my-job-2 comes my-job-3. Names have at most 63 characters."""
    match = re.fullmatch(r"(.+)-(\d{1,6})", name)
    base, first = (match[1], int(match[2]) + 1) if match else (name, 2)
    return [f"{base[: 62 - len(str(number))].rstrip('-')}-{number}" for number in range(first, first + _NAMES)]
