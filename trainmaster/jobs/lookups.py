"""The objects that belong to a TrainJob, and those that a page can do without: None where there are none."""

from __future__ import annotations

from trainmaster.api.labels import JOBSET_NAME
from trainmaster.api.log_paths import find_place
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAINING_RUNTIMES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.models.objects import ObjectModel


async def find_readable(client: Client, gvr: GVR, name: str, namespace: str = "") -> Object | None:
    """None where it does not exist, and where it may not be read."""
    try:
        return await client.get(gvr, name, namespace)
    except StatusError as error:
        if error.code in (403, 404):
            return None
        raise


async def find_runtime(client: Client, trainjob: Object) -> Object | None:
    """The runtime that a TrainJob refers to, as it is now."""
    reference = trainjob["spec"]["runtimeRef"]
    gvr = find_runtime_gvr(reference)
    if gvr is None:
        return None
    namespace = trainjob["metadata"]["namespace"] if gvr == TRAINING_RUNTIMES else ""
    return await find_readable(client, gvr, reference["name"], namespace)


async def find_jobset(client: Client, trainjob: Object) -> Object | None:
    """The JobSet of this very TrainJob."""
    meta = trainjob["metadata"]
    try:
        jobset = await client.get(JOB_SETS, meta["name"], meta["namespace"])
    except NotFound:
        return None
    return jobset if ObjectModel(jobset).is_owned_by(meta["uid"]) else None


async def list_pods(client: Client, trainjob: Object) -> tuple[list[Object], set[str]]:
    """The Pods of this very TrainJob, and the uids of its JobSets that exist."""
    jobset = await find_jobset(client, trainjob)
    if jobset is None:
        return [], set()
    meta, uid = trainjob["metadata"], jobset["metadata"]["uid"]
    page = await client.list(PODS, meta["namespace"], ListOptions(label_selector=f"{JOBSET_NAME}={meta['name']}"))
    pods = [pod for pod in page.items if (place := find_place(pod)) is not None and place.jobset == uid]
    return pods, {uid}
