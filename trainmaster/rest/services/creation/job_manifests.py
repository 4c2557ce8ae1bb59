"""A job as manifests that create it again, under its own or another name: the job, the runtime that was derived for it,
and its own copy of the code, if that is in a ConfigMap.

What the server added is left out, and so is what concerned only this one job: its status, its owner, its
Idempotency-Key.
"""

from __future__ import annotations

from trainmaster.api.labels import DERIVED, RERUN_OF, SCRIPT_OF
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_labels
from trainmaster.api.resources import CONFIG_MAPS, TRAINING_RUNTIMES
from trainmaster.client.contract import Client
from trainmaster.history import exporting
from trainmaster.history.record import JobRecord
from trainmaster.jobs.code_files import find_code_map
from trainmaster.jobs.lookups import find_readable
from trainmaster.jobs.manifests import build_manifest
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.services.creation.naming import get_job_script
from trainmaster.rest.services.creation.new_jobs import BODY_HASH
from trainmaster.rest.services.creation.rerunning import KEY_LABEL, rename_config_map
from trainmaster.rest.services.jobs import RESTART_KEY

_KEPT_META = ("name", "namespace", "labels", "annotations")
_OF_ONE_JOB = (KEY_LABEL, BODY_HASH, RESTART_KEY, RERUN_OF)


async def build_job_manifests(client: Client, job: TrainingJob, name: str = "") -> list[Object]:
    """In the order in which they can be created. `name`: "" for its own."""
    runtime = await _find_derived(client, job)
    reference = find_code_map(job.raw)
    code: Object | None = None
    if reference is not None:
        found = await find_readable(client, CONFIG_MAPS, reference.name, job.namespace)
        code = None if found is None else {"apiVersion": "v1", "kind": "ConfigMap", **found}
    return _assemble(build_manifest(job.raw, job.name), runtime, code, name)


def build_record_manifests(record: JobRecord, code: Object | None, name: str = "") -> list[Object]:
    """The same from the history. `code`: what it has kept of the ConfigMap with the code."""
    if code is not None:
        code = {**code, "metadata": {**code["metadata"], "namespace": record.namespace}}
    return _assemble(exporting.build_manifest(record, record.name), exporting.find_derived(record), code, name)


def _assemble(manifest: Object, runtime: Object | None, code: Object | None, name: str) -> list[Object]:
    before = manifest["metadata"]["name"]
    chosen = name or before
    manifest = _strip(manifest)
    manifest["metadata"]["name"] = chosen
    if code is not None:
        code = _strip(code)
        own = get_job_script(before)
        if code["metadata"]["name"] == own and chosen != before:
            code["metadata"]["name"] = get_job_script(chosen)
            manifest["spec"] = rename_config_map(manifest["spec"], own, get_job_script(chosen))
        if SCRIPT_OF in read_labels(code):
            code["metadata"]["labels"] |= {SCRIPT_OF: chosen}
            code["immutable"] = True
    return [one for one in (runtime, code, manifest) if one is not None]


def _strip(obj: Fields) -> Object:
    meta = {key: obj["metadata"][key] for key in _KEPT_META if key in obj["metadata"]}
    for group in ("labels", "annotations"):
        found = {key: value for key, value in read_fields(meta, group).items() if key not in _OF_ONE_JOB}
        meta.pop(group, None)
        meta |= {group: found} if found else {}
    return {**{key: obj[key] for key in ("apiVersion", "kind") if key in obj}, "metadata": meta, **_list_content(obj)}


def _list_content(obj: Fields) -> Object:
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata", "status")}


async def _find_derived(client: Client, job: TrainingJob) -> Object | None:
    if job.runtime.get("kind") != "TrainingRuntime":
        return None
    found = await find_readable(client, TRAINING_RUNTIMES, str(job.runtime.get("name")), job.namespace)
    if found is None or read_labels(found).get(DERIVED) != "true":
        return None
    return _strip({"apiVersion": TRAINING_RUNTIMES.api_version, "kind": "TrainingRuntime", **found})
