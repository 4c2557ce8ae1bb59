"""Suspends and resumes the JobSet, and updates it while it is suspended.

A running JobSet is not changed. While it is suspended, only its Pods' labels, annotations, node selectors, tolerations
and scheduling gates can change (a rule of JobSet), so edited overrides take effect no later than when the job is
resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from trainmaster.api.admission.updates import MUTABLE_POD_FIELDS
from trainmaster.api.labels import FROM_TRAINJOB
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_metadata
from trainmaster.api.resources import JOB_SETS
from trainmaster.client.writes import Patch
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.jobsets import JobSet

_METADATA = ("labels", "annotations")


def build_toggle(jobset: JobSet, want: bool) -> Patch:
    """Changes only the suspend flag."""
    return build_patch(JOB_SETS, jobset, {"spec": {"suspend": want}})


def build_update(jobset: JobSet, wanted: JobSet) -> Patch | None:
    """Updates a suspended JobSet, including the suspend flag; None if there is nothing to change."""
    spec: Object = {}
    if jobset.is_suspended != wanted.is_suspended:
        spec["suspend"] = wanted.is_suspended
    before = list(jobset.replicated_jobs)
    jobs = _merge_jobs(before, {job["name"]: job for job in wanted.replicated_jobs})
    if jobs != before:
        spec["replicatedJobs"] = jobs
    metadata = _list_changed(jobset, wanted.meta)
    if not spec and not metadata:
        return None
    body: Object = {"metadata": metadata}
    if spec:
        body["spec"] = spec
    return build_patch(JOB_SETS, jobset, body, versioned=True)


def build_metadata_patch(jobset: JobSet, wanted: Fields) -> Patch | None:
    """Updates labels and annotations of the JobSet object itself, which can change at any time."""
    metadata = _list_changed(jobset, wanted)
    return build_patch(JOB_SETS, jobset, {"metadata": metadata}) if metadata else None


def _list_changed(jobset: JobSet, wanted: Fields) -> Object:
    """What is missing or different, and what was removed from the TrainJob."""
    changed: Object = {}
    before = _read_marks(jobset)
    for name in _METADATA:
        have, want = read_fields(jobset.meta, name), read_fields(wanted, name)
        values: dict[str, str | None] = {key: value for key, value in want.items() if have.get(key) != value}
        values |= {key: None for key in before.get(name, ()) if key in have and key not in want}
        if values:
            changed[name] = values
    if FROM_TRAINJOB in jobset.annotations and FROM_TRAINJOB not in read_fields(wanted, "annotations"):
        changed.setdefault("annotations", {})[FROM_TRAINJOB] = None
    return changed


def _read_marks(jobset: JobSet) -> Mapping[str, Sequence[str]]:
    """The labels and annotations that came from the TrainJob; empty if somebody has edited the list."""
    text = jobset.annotations.get(FROM_TRAINJOB, "{}")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {
        name: [key for key in keys if isinstance(key, str)] for name, keys in value.items() if isinstance(keys, list)
    }


def _merge_jobs(jobs: Sequence[Fields], wanted: Mapping[str, Fields]) -> list[Fields]:
    return [_merge_job(job, wanted[job["name"]]) if job["name"] in wanted else job for job in jobs]


def _merge_job(job: Fields, wanted: Fields) -> Fields:
    """The job with the mutable fields of the wanted one."""
    old = job["template"]["spec"]["template"]
    new = wanted["template"]["spec"]["template"]
    metadata = _take(read_metadata(old), read_metadata(new), _METADATA)
    pod = _take(old["spec"], new["spec"], MUTABLE_POD_FIELDS)
    if metadata == read_metadata(old) and pod == old["spec"]:
        return job
    template = {**old, "metadata": metadata, "spec": pod}
    return {**job, "template": {**job["template"], "spec": {**job["template"]["spec"], "template": template}}}


def _take(old: Fields, new: Fields, names: tuple[str, ...]) -> Object:
    """`old` with these fields from `new`; empty values are omitted."""
    result = {name: value for name, value in old.items() if name not in names}
    for name in names:
        if new.get(name):
            result[name] = new[name]
        elif name in old and not old[name]:
            result[name] = old[name]
    return result
