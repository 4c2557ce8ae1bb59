"""The ConfigMaps with the packed code of jobs (`compose.carried`): who owns them, and what a crash left behind.

A ConfigMap is created before its TrainJob, because Pods need it, and is owned by the TrainJob as soon as that exists,
so that it is deleted with it. Between these two writes it has the label `ownerless`. Whoever submits the next job in
that namespace gives it its TrainJob as the owner, or deletes it after a day; a day, because clocks differ. Its name has
a random suffix, so that it never meets the ConfigMap of a deleted job of the same name.

Works with any API server, and needs the rights to create, list, patch and delete ConfigMaps.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from trainmaster.api.labels import CODE_MAP, CODE_OF, OWNERLESS
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_annotations, read_labels
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.kit.clock import parse_time

SELECTOR = f"{OWNERLESS}=true,{CODE_OF}"
KEPT_SECONDS = 86400.0


async def adopt(client: Client, config_map: Fields, trainjob: Fields) -> None:
    """Makes the TrainJob an owner, beside others: a job that is repeated shares its code with the first one."""
    owner = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "name": trainjob["metadata"]["name"],
        "uid": trainjob["metadata"]["uid"],
    }
    meta = config_map["metadata"]
    patch = {"metadata": {"uid": meta["uid"], "labels": {OWNERLESS: None}, "ownerReferences": [owner]}}
    # A strategic patch adds to the owners.
    await client.patch(CONFIG_MAPS, meta["name"], PatchType.STRATEGIC, patch, meta["namespace"])


async def drop(client: Client, config_map: Fields) -> None:
    """Deletes one whose TrainJob was refused, unless it has an owner."""
    meta = config_map["metadata"]
    options = DeleteOptions(uid=meta["uid"], resource_version=meta["resourceVersion"])
    with suppress(StatusError):  # somebody else finds it later
        await client.delete(CONFIG_MAPS, meta["name"], meta["namespace"], options)


async def find(client: Client, trainjob: Fields) -> Object | None:
    """The ConfigMap that the job refers to; None if it refers to none. NotFound, in a sentence, if it is gone."""
    name, meta = read_annotations(trainjob).get(CODE_MAP), trainjob["metadata"]
    if not name:
        return None
    try:
        return await client.get(CONFIG_MAPS, name, meta["namespace"])
    except NotFound:
        text = f"the code of {meta['name']} was deleted with its ConfigMap {name}: submit it with `trainmaster run`"
        raise NotFound(404, "NotFound", text) from None


async def create_again(client: Client, gvr: GVR, manifest: Object, namespace: str) -> Object:
    """Creates a job that repeats another one and shares its code. NotFound if that is gone, because its Pods would wait
    for ever."""
    code = await find(client, manifest)
    made = await client.create(gvr, manifest, namespace)
    if code is not None:
        await adopt(client, code, made)
    return made


async def settle(client: Client, namespace: str, now: datetime) -> None:
    """Completes or deletes what crashes have left in the namespace."""
    for left in (await client.list(CONFIG_MAPS, namespace, ListOptions(label_selector=SELECTOR))).items:
        try:
            job = await client.get(TRAIN_JOBS, read_labels(left)[CODE_OF], namespace)
        except NotFound:
            job = None
        with suppress(NotFound, Conflict):
            if job is not None and read_annotations(job).get(CODE_MAP) == left["metadata"]["name"]:
                await adopt(client, left, job)
            elif is_left_over(left, now):
                await drop(client, left)


def is_left_over(config_map: Fields, now: datetime) -> bool:
    """Whether its TrainJob was surely never created."""
    age = (now - parse_time(config_map["metadata"]["creationTimestamp"])).total_seconds()
    return not config_map["metadata"].get("ownerReferences") and age > KEPT_SECONDS


def explain_unowned(error: StatusError, name: str, namespace: str) -> str:
    return (
        f"the code of the job stays when the job is deleted ({error.message}): "
        f"`kubectl delete configmap {name} -n {namespace}` removes it"
    )
