"""The three shapes in which a TrainJob changes its runtime's template, merged as upstream merges them.

    runtimePatches         Trainer 2.2 and later: patches of the JobSet spec, by manager
    podTemplateOverrides   Trainer 2.1: patches of the Pod template of the jobs they name
    podSpecOverrides       Trainer 2.0: the same without metadata

Each is a strategic merge patch, in list order, later ones win. A job that uses several shapes at once gets the older
ones first. `spec.labels` and `spec.annotations` (2.1) go to the JobSet itself. A name that the runtime does not have
changes nothing here: admission refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trainmaster.api.labels import CONTROLLERS_OWN, FROM_TRAINJOB
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.training.steps import get_runtime_spec, list_jobs

SHAPES = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
OLDER = ("podSpecOverrides", "podTemplateOverrides", "labels", "annotations")
"""The fields of a TrainJob's spec that Trainer 2.2 and later do not have."""
_JOB = "io.k8s.api.batch.v1.Job"
"""A Job template has the fields of a Job, and so its merge keys."""
_METADATA = ("labels", "annotations")


@dataclass(frozen=True, slots=True)
class JobPatch:
    """One patch of one job's template."""

    shape: str
    index: int
    """The index in the TrainJob's list."""
    job: str
    template: Mapping[str, Any]
    """{metadata, spec} of the Job template."""

    @property
    def pod(self) -> Mapping[str, Any]:
        template = (self.template.get("spec") or {}).get("template") or {}
        spec: Mapping[str, Any] = template.get("spec") or {}
        return spec


def list_job_patches(trainjob: Mapping[str, Any]) -> Iterator[JobPatch]:
    """All patches in the order in which they are merged."""
    spec = trainjob.get("spec") or {}
    for index, override in enumerate(spec.get("podSpecOverrides") or ()):
        pod = {key: value for key, value in override.items() if key != "targetJobs"}
        yield from _target(override, "podSpecOverrides", index, {"spec": pod})
    for index, override in enumerate(spec.get("podTemplateOverrides") or ()):
        metadata = {key: value for key, value in (override.get("metadata") or {}).items() if key in _METADATA}
        template = {"metadata": metadata, "spec": override.get("spec")}
        yield from _target(override, "podTemplateOverrides", index, template)
    for index, patch in enumerate(spec.get("runtimePatches") or ()):
        for job in list_jobs(get_patch_template(patch).get("spec") or {}):
            yield JobPatch("runtimePatches", index, job["name"], job.get("template") or {})


def _target(override: Mapping[str, Any], shape: str, index: int, template: Mapping[str, Any]) -> Iterator[JobPatch]:
    for target in override.get("targetJobs") or ():
        yield JobPatch(shape, index, target["name"], {"spec": {"template": template}})


def get_patch_template(patch: Mapping[str, Any]) -> Mapping[str, Any]:
    template: Mapping[str, Any] = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
    return template


def merge_jobs(spec: Object, trainjob: Mapping[str, Any]) -> Object:
    """The JobSet spec with all patches. The order of its jobs is the runtime's."""
    patches = list(list_job_patches(trainjob))
    if not patches:
        return spec
    from trainmaster.api.patches import strategic  # noqa: PLC0415 - few jobs have patches

    node = load(_JOB)
    jobs = []
    for job in list_jobs(spec):
        template = job.get("template") or {}
        for patch in patches:
            if patch.job == job.get("name"):
                template = strategic.merge(template, _drop_nothing(patch.template), node)
        jobs.append({**job, "template": template})
    return {**spec, "replicatedJobs": jobs}


def build_equivalent(trainjob: Mapping[str, Any], manager: str) -> Object:
    """One runtime patch that says the same as the older shapes, if it comes before the job's own patches."""
    from trainmaster.api.patches import strategic  # noqa: PLC0415 - few jobs have patches

    spec = trainjob.get("spec") or {}
    older = {"spec": {name: spec[name] for name in OLDER if name in spec}}
    node = load(_JOB)
    jobs: dict[str, Object] = {}
    for patch in list_job_patches(older):
        template = _drop_nothing(patch.template)
        pod = template["spec"]["template"]
        if not pod.get("metadata"):
            pod.pop("metadata", None)
        jobs[patch.job] = strategic.merge(jobs.get(patch.job, {}), template, node)
    template = {"metadata": {name: spec[name] for name in _METADATA if spec.get(name)}}
    if not template["metadata"]:
        template = {}
    if jobs:
        template["spec"] = {"replicatedJobs": [{"name": name, "template": jobs[name]} for name in jobs]}
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


def merge_metadata(trainjob: Mapping[str, Any], runtime: Mapping[str, Any]) -> Object:
    """Labels and annotations of the JobSet object; empty ones are left out. What comes from the TrainJob can be taken
    out again, so an annotation lists it."""
    template = get_runtime_spec(runtime).get("template") or {}
    given = template.get("metadata") or {}
    merged: Object = {}
    changing: dict[str, list[str]] = {}
    for name in _METADATA:
        own: dict[str, str] = {}
        for source in _list_own_metadata(trainjob):
            own.update(_drop_books(source.get(name)))
        if own:
            changing[name] = sorted(own)
        if values := {**_drop_books(given.get(name)), **own}:
            merged[name] = values
    if changing:
        text = orjson.dumps(changing).decode()
        merged["annotations"] = {**merged.get("annotations", {}), FROM_TRAINJOB: text}
    return merged


def _drop_books(values: Mapping[str, str] | None) -> dict[str, str]:
    """Removes annotations with the controllers' internal state, which users must not set."""
    return {key: value for key, value in (values or {}).items() if key not in CONTROLLERS_OWN}


def _list_own_metadata(trainjob: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = trainjob.get("spec") or {}
    return [spec, *(get_patch_template(patch).get("metadata") or {} for patch in spec.get("runtimePatches") or ())]


def _drop_nothing(value: Any) -> Any:
    """Removes nulls: a typed client omits them, and in a patch null means delete."""
    if isinstance(value, Mapping):
        return {key: _drop_nothing(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nothing(item) for item in value if item is not None]
    return value
