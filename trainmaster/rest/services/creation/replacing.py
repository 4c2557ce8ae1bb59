"""Replaces a job that waits by the same job with a change, such as fewer nodes (`explain` proposes them).

The new job is created before the old one is deleted, so that no error in between loses both. If the old one starts
meanwhile, it stays, and the new one is removed.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.api.meta import Object
from trainmaster.api.patches import merge
from trainmaster.api.status import Conflict, NotFound
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.services.creation.rerunning import rerun
from trainmaster.rest.services.job_views import PENDING, read_state
from trainmaster.rest.services.jobs import get_job

_TRIES = 5


async def replace_waiting(
    client: Client, namespace: str, reference: str, patch: Mapping[str, object], name: str | None
) -> Object:
    """The new job. Raises Problem 409 for a job that does not wait."""
    job = await get_job(client, namespace, reference)
    if set(patch) != {"spec"} or not isinstance(patch["spec"], dict):
        raise invalid([FieldProblem("must be an object with `spec`, and nothing else", pointer="/patch")])
    _check_waiting(job)
    made = await rerun(client, type(job)(merge.apply(dict(job.raw), dict(patch))), name, "")
    if await _delete_waiting(client, job):
        return made
    await _delete(client, type(job)(made))
    raise Problem(409, "not-waiting", f"{job.name} has started meanwhile", hint="it was left as it is")


def _check_waiting(job: TrainingJob) -> None:
    state = read_state(job)
    if job.is_deleting or state.word != PENDING:
        word = "is being deleted" if job.is_deleting else f"does not wait: it is {state.word}"
        raise Problem(409, "not-waiting", f"{job.name} {word}", hint="only jobs that wait are replaced")


async def _delete_waiting(client: Client, job: TrainingJob) -> bool:
    """Whether it is deleted. The revision ensures that it still waits then."""
    for _ in range(_TRIES):
        try:
            current = type(job)(await client.get(job.gvr, job.name, job.namespace))
        except NotFound:
            return True
        if current.uid != job.uid:
            return True
        if read_state(current).word != PENDING:
            return False
        options = DeleteOptions(uid=job.uid, resource_version=current.resource_version)
        try:
            await client.delete(job.gvr, job.name, job.namespace, options)
        except NotFound:
            return True
        except Conflict:
            continue
        return True
    return False


async def _delete(client: Client, job: TrainingJob) -> None:
    try:
        await client.delete(job.gvr, job.name, job.namespace, DeleteOptions(uid=job.uid))
    except (NotFound, Conflict):
        return
