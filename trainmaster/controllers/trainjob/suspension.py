"""Suspend, resume, and what may change on the JobSet meanwhile.

A JobSet that runs is frozen. While it is suspended its Pods' labels, annotations, node selector, tolerations and
scheduling gates may change, and nothing else (JobSet's own rule); so an edited override takes effect at the latest
when the job is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trainmaster.api.admission.updates import MUTABLE_POD_FIELDS
from trainmaster.api.labels import FROM_TRAINJOB
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.training.steps import list_jobs
from trainmaster.client.writes import Patch

_METADATA = ("labels", "annotations")


def is_suspended(jobset: Object) -> bool:
    return bool(jobset["spec"].get("suspend"))


def build_toggle(jobset: Object, want: bool) -> Patch:
    """The suspend flag alone."""
    meta = jobset["metadata"]
    patch = {"metadata": {"uid": meta["uid"]}, "spec": {"suspend": want}}
    return Patch(JOB_SETS, meta["namespace"], meta["name"], patch)


def build_update(jobset: Object, wanted: Object) -> Patch | None:
    """What makes a suspended JobSet as it should be, the suspend flag included; None when it is already."""
    spec: Object = {}
    if is_suspended(jobset) != is_suspended(wanted):
        spec["suspend"] = is_suspended(wanted)
    jobs = _merge_jobs(list_jobs(jobset["spec"]), {job["name"]: job for job in list_jobs(wanted["spec"])})
    if jobs != list_jobs(jobset["spec"]):
        spec["replicatedJobs"] = jobs
    metadata = _list_changed(jobset, wanted["metadata"])
    if not spec and not metadata:
        return None
    meta = jobset["metadata"]
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], **metadata}
    body: Object = {"metadata": head}
    if spec:
        body["spec"] = spec
    return Patch(JOB_SETS, meta["namespace"], meta["name"], body)


def build_marks(jobset: Object, wanted: Mapping[str, Any]) -> Patch | None:
    """Labels and annotations of the JobSet object itself, which may change at any time."""
    metadata = _list_changed(jobset, wanted)
    if not metadata:
        return None
    meta = jobset["metadata"]
    return Patch(JOB_SETS, meta["namespace"], meta["name"], {"metadata": {"uid": meta["uid"], **metadata}})


def _list_changed(jobset: Object, wanted: Mapping[str, Any]) -> Object:
    """What is missing or different, and what stood in the TrainJob once and does not any more."""
    changed: Object = {}
    before = _read_marks(jobset)
    for name in _METADATA:
        have, want = jobset["metadata"].get(name) or {}, wanted.get(name) or {}
        values: dict[str, str | None] = {key: value for key, value in want.items() if have.get(key) != value}
        values |= {key: None for key in before.get(name, ()) if key in have and key not in want}
        if values:
            changed[name] = values
    if FROM_TRAINJOB in (jobset["metadata"].get("annotations") or {}) and not _has_marks(wanted):
        changed.setdefault("annotations", {})[FROM_TRAINJOB] = None
    return changed


def _has_marks(wanted: Mapping[str, Any]) -> bool:
    return FROM_TRAINJOB in (wanted.get("annotations") or {})


def _read_marks(jobset: Object) -> Mapping[str, Sequence[str]]:
    """The labels and annotations that came from the TrainJob; nothing when the list was edited by hand."""
    text = (jobset["metadata"].get("annotations") or {}).get(FROM_TRAINJOB, "{}")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {
        name: [key for key in keys if isinstance(key, str)] for name, keys in value.items() if isinstance(keys, list)
    }


def _merge_jobs(jobs: list[Object], wanted: Mapping[str, Object]) -> list[Object]:
    return [_merge_job(job, wanted[job["name"]]) if job["name"] in wanted else job for job in jobs]


def _merge_job(job: Object, wanted: Object) -> Object:
    """The job with the mutable parts of the wanted one."""
    old = job["template"]["spec"]["template"]
    new = wanted["template"]["spec"]["template"]
    metadata = _take(old.get("metadata") or {}, new.get("metadata") or {}, _METADATA)
    pod = _take(old["spec"], new["spec"], MUTABLE_POD_FIELDS)
    if metadata == (old.get("metadata") or {}) and pod == old["spec"]:
        return job
    template = {**old, "metadata": metadata, "spec": pod}
    return {**job, "template": {**job["template"], "spec": {**job["template"]["spec"], "template": template}}}


def _take(old: Mapping[str, Any], new: Mapping[str, Any], names: tuple[str, ...]) -> Object:
    """`old` with these fields from `new`; what says nothing is left out."""
    result = {name: value for name, value in old.items() if name not in names}
    for name in names:
        if new.get(name):
            result[name] = new[name]
        elif name in old and not old[name]:
            result[name] = old[name]
    return result
