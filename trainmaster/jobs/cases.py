"""Reads everything about one training job that `jobs.diagnosis` examines, through any client. Changes nothing.

Used by `trainmaster doctor trainjob` and by the REST API. What the caller may not read is left out, and
`Case.forbidden` says so.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import TypeVar

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.policy import read_policy
from trainmaster.api.meta import GVR
from trainmaster.api.reading import read_status
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS
from trainmaster.api.status import StatusError
from trainmaster.api.training import snapshots
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.diagnosis import Case
from trainmaster.jobs.lookups import find_jobset, find_readable, find_runtime, read_parts
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.troubles import REFUSED

REVIEWS = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
T = TypeVar("T")


async def collect_case(client: Client, job: TrainingJob, now: datetime) -> Case:
    """`now`: by the server's clock."""
    jobset = await _skip_forbidden(find_jobset(client, job))
    parts = await _skip_forbidden(read_parts(client, job))
    snapshot = await find_readable(client, CONFIG_MAPS, snapshots.get_name(job.raw), job.namespace)
    jobs = [] if jobset is None else await _skip_forbidden(_list_jobs(client, jobset)) or []
    return Case(
        job,
        now,
        runtime=await find_runtime(client, job),
        snapshot=snapshot is not None,
        jobsets=[] if jobset is None else [jobset],
        jobs=jobs,
        events=await _skip_forbidden(_list_refusals(client, job.namespace)) or [] if jobs else [],
        pods=[] if parts is None else [Pod(one) for one in parts.pods],
        policy=read_policy(await find_readable(client, CONFIG_MAPS, policy.NAME, policy.NAMESPACE)).policy,
        forbidden=await _list_forbidden(client, job),
    )


async def _list_jobs(client: Client, jobset: JobSet) -> list[Job]:
    options = ListOptions(label_selector=f"{JOBSET_UID}={jobset.uid}")
    return list(map(Job, (await client.list(JOBS, jobset.namespace, options)).items))


async def _list_refusals(client: Client, namespace: str) -> list[ObjectEvent]:
    """Of Jobs whose Pods the server refuses."""
    options = ListOptions(field_selector=f"involvedObject.kind=Job,reason={REFUSED}")
    return list(map(ObjectEvent, (await client.list(EVENTS, namespace, options)).items))


async def _skip_forbidden(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except StatusError as error:
        if error.code == 403:
            return None
        raise


async def _list_forbidden(client: Client, job: TrainingJob) -> list[tuple[str, str]]:
    found = []
    below = (JOB_SETS, JOBS, PODS) if job.has_jobset else (PODS,)
    for verb, gvr in (("delete", job.gvr), ("patch", job.gvr), *(("list", gvr) for gvr in below)):
        attributes = {"namespace": job.namespace, "verb": verb, "group": gvr.group, "resource": gvr.plural}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await client.create(REVIEWS, body)
        if not read_status(answer).get("allowed"):
            found.append((verb, gvr.qualified))
    return found
