"""When the overrides of a TrainJob may change, and how far.

Upstream accepts changes that the JobSet then always refuses, while the condition says Resumed. Here a change that
cannot reach the Pods is refused immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api import fields
from trainmaster.api.admission.contract import Lookup
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.training.steps import list_jobs
from trainmaster.api.training.template import fill_template

_WORDS = {
    "runtimePatches": "RuntimePatches",
    "podTemplateOverrides": "PodTemplateOverrides",
    "podSpecOverrides": "PodSpecOverrides",
}
MUTABLE_POD_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields that may change in a suspended JobSet, besides labels and annotations of Pods."""


def check_moment(new: Object, old: Object, changed: Sequence[str], lookup: Lookup) -> list[FieldError]:
    errors: list[FieldError] = []
    jobset = _find_jobset(new, lookup)
    for shape in changed:
        path, word = f"spec.{shape}", _WORDS[shape]
        suspended = bool(new["spec"].get("suspend"))
        rule = "can only be modified when the TrainJob is suspended"
        if shape == "runtimePatches":
            suspended = suspended or bool(old["spec"].get("suspend"))
            rule += " before or after the update"
        if not suspended:
            errors.append(fields.forbidden(path, f"{word} {rule}"))
            continue
        for entry in ((jobset or {}).get("status") or {}).get("replicatedJobsStatus") or ():
            if entry.get("active", 0) > 0:
                text = f"{word} cannot be modified when the JobSet's ReplicatedJob {entry['name']} is still active"
                errors.append(fields.forbidden(path, text))
    return errors


def check_reach(new: Object, old: Object, changed: Sequence[str], runtime: Object, lookup: Lookup) -> list[FieldError]:
    """Refuses changes that an existing JobSet does not accept; they would be lost."""
    if _find_jobset(new, lookup) is None:
        return []
    before, after = _strip(fill_template(old, runtime)), _strip(fill_template(new, runtime))
    places = list(dict.fromkeys(_list_differences(before, after, "")))
    if not places:
        return []
    text = (
        f"{_WORDS[changed[-1]]} can change labels, annotations, {', '.join(MUTABLE_POD_FIELDS)} of Pods once the "
        f"JobSet exists, and nothing else; changed: {', '.join(places)}. Create a new TrainJob for it"
    )
    return [fields.forbidden(f"spec.{changed[-1]}", text)]


def _find_jobset(trainjob: Object, lookup: Lookup) -> Object | None:
    meta = trainjob["metadata"]
    found = lookup.find(JOB_SETS, meta["namespace"], meta["name"])
    if found is None:
        return None
    owners = {owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()}
    return found if meta.get("uid") in owners else None


def _strip(spec: Object) -> Object:
    """The spec without the mutable fields."""
    jobs = {}
    for job in list_jobs(spec):
        template = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
        pod = {k: v for k, v in (template.get("spec") or {}).items() if k not in MUTABLE_POD_FIELDS}
        jobs[job["name"]] = {"metadata": (job.get("template") or {}).get("metadata") or {}, "Pods": pod}
    return jobs


def _list_differences(old: Any, new: Any, path: str) -> list[str]:
    """The paths of changed fields, at most two levels below a job."""
    if old == new:
        return []
    depth = path.count(".")
    if isinstance(old, Mapping) and isinstance(new, Mapping) and depth < 2:
        found: list[str] = []
        for name in dict.fromkeys([*old, *new]):
            found += _list_differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
        return found
    return [path]
