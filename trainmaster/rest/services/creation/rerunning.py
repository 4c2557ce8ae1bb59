"""Repeats a finished job under a new name, with its own copy of the code.

A job created by the REST API mounts the ConfigMap `{job}-script`, which is deleted with that job. So the new one gets a
copy first, in the order of `guide_jobs`: the copy, the job, the owner. The sweep handles what a crash leaves.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence

from trainmaster.api.labels import SCRIPT_OF
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_labels
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.jobs import code_maps
from trainmaster.jobs.control import build_rerun, list_new_names
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation.guide_jobs import WRITES, adopt
from trainmaster.rest.services.creation.naming import get_job_script

log = logging.getLogger(__name__)

_COPIED = ("apiVersion", "kind", "data", "binaryData")
KEY_LABEL = "trainmaster.dev/idempotency-key"
"""Label on jobs and scripts, set by the REST API: the hashed Idempotency-Key of the request that created it."""


async def rerun(
    client: Client, job: TrainingJob, new_name: str | None, key: str, *, names: Sequence[str] = ()
) -> Object:
    """The new job. `key`: repeating the request with the same key returns the same job. `names`: those to choose from;
    otherwise its own with a number."""
    if key:
        # One name per key, so that a repeated request finds what was created.
        names = [new_name or f"{job.name[:35].rstrip('-')}-{key[:8]}"]
    elif new_name:
        names = [new_name]
    else:
        names = names or list_new_names(job.name)
    script, code = await _find_script(client, job), await code_maps.find(client, job.raw)
    for name in names:
        made = await _make(client, job, name, script, key)
        if made is not None:
            if code is not None:
                await code_maps.adopt(client, code, made)
            return made
    taken = new_name or f"{job.name}-2 and the following"
    raise Problem(409, "already-exists", f"{taken}: this name is taken", hint="send another `name`")


async def _find_script(client: Client, job: TrainingJob) -> Object | None:
    if not isinstance(job, TrainJob):
        return None  # the REST API creates TrainJobs only
    name = get_job_script(job.name)
    try:
        script: Object | None = await client.get(CONFIG_MAPS, name, job.namespace)
    except NotFound:
        script = None
    if script is not None and _belongs(script, job):
        return script
    if _mentions(job.spec, name) and (script is None or read_labels(script).get(SCRIPT_OF) == job.name):
        text = f"the code of {job.name} was deleted with the job: it was in its ConfigMap {name}"
        raise Problem(409, "code-gone", text, hint="create the job again with its code")
    return None


def _belongs(script: Object, job: TrainingJob) -> bool:
    """Not to an earlier or a later job of the same name."""
    owners = list_items(script, "metadata", "ownerReferences")
    is_own = not owners or any(owner.get("uid") == job.uid for owner in owners)
    return is_own and read_labels(script).get(SCRIPT_OF) == job.name


async def _make(client: Client, job: TrainingJob, name: str, script: Object | None, key: str) -> Object | None:
    manifest = build_rerun(job.raw, name)
    labels = {**read_labels(manifest), KEY_LABEL: key}
    manifest["metadata"]["labels"] = {label: value for label, value in labels.items() if value}
    own: Object | None = None
    if script is not None:
        own = await _copy_script(client, script, name, key)
        if own is None:
            return None
        manifest["spec"] = rename_config_map(manifest["spec"], script["metadata"]["name"], own["metadata"]["name"])
    try:
        made = await client.create(job.gvr, manifest, job.namespace, options=WRITES)
    except AlreadyExists:
        made = await client.get(job.gvr, name, job.namespace)
        if not key or read_labels(made).get(KEY_LABEL) != key:
            await _remove(client, own)
            return None
    except StatusError as error:
        if error.code < 500:
            await _remove(client, own)
        raise
    if own is not None:
        await adopt(client, own, made)
    return made


async def _copy_script(client: Client, script: Object, trainjob: str, key: str) -> Object | None:
    """None if the name is taken."""
    namespace = script["metadata"]["namespace"]
    labels = {**read_labels(script), SCRIPT_OF: trainjob, KEY_LABEL: key}
    meta = {"name": get_job_script(trainjob), "namespace": namespace}
    meta_labels = {label: value for label, value in labels.items() if value}
    fresh = {field: value for field, value in script.items() if field in _COPIED}
    body: Object = {**fresh, "metadata": {**meta, "labels": meta_labels}, "immutable": True}
    try:
        return await client.create(CONFIG_MAPS, body, namespace, options=WRITES)
    except AlreadyExists:
        present = await client.get(CONFIG_MAPS, meta["name"], namespace)
        same = key and read_labels(present).get(KEY_LABEL) == key
        return present if same else None


async def _remove(client: Client, script: Object | None) -> None:
    if script is None or script["metadata"].get("ownerReferences"):
        return
    meta = script["metadata"]
    try:
        await client.delete(CONFIG_MAPS, meta["name"], meta["namespace"], DeleteOptions(uid=meta["uid"]))
    except (NotFound, Conflict):
        log.debug("the script is gone already", extra={"action": "rest.leftover", "script": meta["name"]})


def _mentions(spec: Fields, name: str) -> bool:
    """Whether a volume is made of this ConfigMap."""
    return any(source.get("name") == name for source in _list_sources(spec))


def rename_config_map(spec: Object, old: str, new: str) -> Object:
    """The spec with all volumes of the old ConfigMap replaced by the new one."""
    changed: Object = copy.deepcopy(spec)
    for source in _list_sources(changed):
        if source.get("name") == old:
            source["name"] = new
    return changed


def _list_sources(spec: Fields) -> Iterator[Object]:
    stack: list[object] = [spec]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            source = item.get("configMap")
            if isinstance(source, dict):
                yield source
            stack += item.values()
        elif isinstance(item, list):
            stack += item
