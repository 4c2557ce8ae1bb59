"""Deletes a job, with its Pods and its copy of the code. Idempotent.

The system ConfigMap is kept, because other jobs use it. The user's newest code is deleted only on request, and only if
the user has no other unfinished job that may have been created from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.labels import USER
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.jobs.lookups import get_training_job, list_training_jobs
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.job_reader import JobReader


@dataclass(frozen=True, slots=True)
class JobDeletion:
    message: str


async def delete_job(
    client: Client, reader: JobReader, namespace: str, reference: str, *, with_user_script: bool = False
) -> JobDeletion:
    try:
        job: TrainingJob | None = await get_training_job(client, namespace, reference)
    except NotFound:
        job = None
    name = reference.rpartition("/")[2]
    said = await _delete(client, reader, namespace, reference, job)
    if not with_user_script:
        return JobDeletion(said)
    user = _find_user(name, job)
    if not user:
        return JobDeletion(f"{said}; whose script it used is not known, so none was deleted")
    return JobDeletion(f"{said}; {await _delete_script(client, namespace, name, user)}")


async def _delete(client: Client, reader: JobReader, namespace: str, reference: str, job: TrainingJob | None) -> str:
    if job is not None:
        reader.note_deleted(namespace, job.name)
        try:
            options = DeleteOptions(propagation="Background", uid=job.uid)
            await client.delete(job.gvr, job.name, namespace, options)
        except NotFound:
            job = None
    if job is not None:
        return "the job is deleted; its workers end and its logs stay in history"
    record = await reader.find_record(namespace, reference)
    if record is not None and record.deletion is not None:
        return f"the job was deleted before, at {record.deletion.at}"
    return "there is no such job; nothing was deleted"


def _find_user(name: str, job: TrainingJob | None) -> str:
    """From the job's label, otherwise from its name."""
    label = "" if job is None else job.labels.get(USER, "")
    user, _, second = name.rpartition("-job-")
    return label or (user if second.isdigit() and naming.is_user(user) else "")


async def _delete_script(client: Client, namespace: str, name: str, user: str) -> str:
    script = naming.get_latest_script(user)
    found = await list_training_jobs(client, namespace, f"{USER}={user}")
    others = [job for job in found if job.name != name]
    needed = [job.name for job in others if not job.is_deleting and not job.is_finished]
    if needed:
        return f"{script} stays: {needed[0]} has not ended"
    try:
        await client.delete(CONFIG_MAPS, script, namespace)
    except NotFound:
        return f"there is no {script}"
    return f"{script} is deleted"
