"""Suspending the Jobs of a JobSet, and resuming them with what changed in their templates meanwhile.

A Job takes a changed template only when it has come to rest (its Suspended condition stands, no Pod is left). One that
has not is resumed by a later pass, and until then the JobSet's own condition says Suspended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS
from trainmaster.client.writes import Patch, Write
from trainmaster.controllers.jobset import startup
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.places import Replicated, list_replicated
from trainmaster.controllers.jobset.status import Draft, select
from trainmaster.controllers.ownership import is_terminating


def suspend(buckets: ChildJobs, draft: Draft) -> list[Write]:
    draft.set("Suspended", True, "SuspendedJobs", "jobset is suspended")
    draft.set("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")
    running = [job for job in buckets.active if not job["spec"].get("suspend") and not is_terminating(job)]
    return [_patch(job, {"suspend": True}) for job in running]


def resume(jobset: Object, buckets: ChildJobs, draft: Draft) -> list[Write]:
    writes: list[Write] = []
    in_order = startup.is_in_order(jobset)
    rests = True
    for replicated in list_replicated(jobset):
        if not startup.may_start(jobset, replicated, draft):
            continue
        if in_order and startup.is_started(replicated, draft):
            continue
        for job in select(buckets.active, replicated["name"]):
            if not job["spec"].get("suspend") or is_terminating(job):
                continue
            template = build_template_patch(job, replicated)
            if template and not _has_come_to_rest(job):
                rests = False
                continue
            writes.append(_patch(job, {"suspend": False, **({"template": template} if template else {})}))
        if in_order:
            startup.note_progress(draft)
            return writes
    if rests:
        draft.set("Suspended", False, "ResumeJobs", "jobset is resumed")
    return writes


def _has_come_to_rest(job: Object) -> bool:
    status = job.get("status") or {}
    started = "startTime" in status and not is_true(list_conditions(job), "Suspended")
    return not started and not status.get("active")


def build_template_patch(job: Object, replicated: Replicated) -> dict[str, Any]:
    """What the ReplicatedJob's template adds to the Job's. Merged, because others add to the Job's too; so nothing
    that was taken out of the JobSet disappears from the Job."""
    have = job["spec"]["template"]
    want = (replicated["template"].get("spec") or {}).get("template") or {}
    have_meta, want_meta = have.get("metadata") or {}, want.get("metadata") or {}
    have_spec, want_spec = have.get("spec") or {}, want.get("spec") or {}
    meta = {key: _add_keys(have_meta.get(key), want_meta.get(key)) for key in ("labels", "annotations")}
    spec: dict[str, Any] = {"nodeSelector": _add_keys(have_spec.get("nodeSelector"), want_spec.get("nodeSelector"))}
    for key in ("tolerations", "schedulingGates"):
        old = list(have_spec.get(key) or ())
        new = [item for item in want_spec.get(key) or () if item not in old]
        spec[key] = [*old, *new] if new else []
    parts = {"metadata": _without_empty(meta), "spec": _without_empty(spec)}
    return _without_empty(parts)


def _add_keys(have: Mapping[str, str] | None, want: Mapping[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (want or {}).items() if (have or {}).get(key) != value}


def _without_empty(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item}


def _patch(job: Object, spec: dict[str, Any]) -> Patch:
    meta = job["metadata"]
    return Patch(JOBS, meta["namespace"], meta["name"], {"metadata": {"uid": meta["uid"]}, "spec": spec})
