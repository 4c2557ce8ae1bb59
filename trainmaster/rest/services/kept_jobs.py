"""What can be done with the record of a job: run the job again, and delete the record."""

from __future__ import annotations

from contextlib import suppress

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_status
from trainmaster.api.resources import JOB_RECORDS, TRAINING_RUNTIMES
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.client.contract import Client
from trainmaster.history.exporting import find_derived
from trainmaster.history.record import JobRecord
from trainmaster.jobs.control import list_new_names
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.audit_trail import AuditedWrite
from trainmaster.rest.callers import ACCESS_REVIEWS, Caller
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation.rerunning import rerun
from trainmaster.rest.services.history import HistoryService
from trainmaster.rest.services.namespaces import check_reader, find_namespace


async def get_record(caller: Caller, history: HistoryService, uid: str, namespace: str | None) -> JobRecord:
    """In the namespace, or in the caller's own. Raises if the caller may not read TrainJobs there, and Problem 404."""
    space = find_namespace(caller, namespace)
    await check_reader(caller, space)
    return await history.get(space, uid)


async def rerun_kept(client: Client, record: JobRecord, new_name: str | None, key: str) -> Object:
    """The new job. `key`: repeating the request with the same key returns the same job."""
    job = read_training_job(record.document["trainjob"])
    exists = await _exists(client, job)
    derived = find_derived(record)
    if derived is not None:
        with suppress(AlreadyExists):  # another job still uses it
            await client.create(TRAINING_RUNTIMES, derived, job.namespace)
    names = list_new_names(job.name)
    return await rerun(client, job, new_name, key, names=names if exists else [job.name, *names])


async def _exists(client: Client, job: TrainingJob) -> bool:
    try:
        await client.get(job.gvr, job.name, job.namespace)
    except NotFound:
        return False
    return True


async def delete_kept(caller: Caller, history: HistoryService, record: JobRecord) -> None:
    """Raises Problem 409 while its job exists, and StatusError 403 if the caller may not delete such jobs."""
    gvr = read_training_job(record.document["trainjob"]).gvr
    attributes = {"verb": "delete", "group": gvr.group, "resource": gvr.plural, "namespace": record.namespace}
    review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": "SelfSubjectAccessReview"}
    answer = await caller.client.create(ACCESS_REVIEWS, {**review, "spec": {"resourceAttributes": attributes}})
    if not read_status(answer).get("allowed"):
        raise StatusError(403, "Forbidden", f"you may not delete {gvr.plural} in the namespace {record.namespace!r}")
    if record.deletion is None:
        hint = f"DELETE /api/v1/jobs/{record.name}?namespace={record.namespace} deletes the job"
        raise Problem(409, "job-exists", f"the job {record.name} exists, and its record stays as long", hint=hint)
    await history.purge(record.uid)
    if caller.client.trail is not None:
        caller.client.trail.note(AuditedWrite("delete", JOB_RECORDS, record.namespace, record.uid), 200)
