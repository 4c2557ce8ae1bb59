"""Suspends the Jobs of a JobSet, and resumes them with changes made to their templates in the meantime.

The template of a Job can be changed only after it is fully suspended (it has the Suspended condition and no Pods).
Other Jobs are resumed in a later pass; until then the JobSet's condition remains Suspended.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_labels, read_spec
from trainmaster.api.resources import JOBS
from trainmaster.controllers.jobset import startup
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.status import JobSetDraft, select
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet


def suspend(buckets: ChildJobs, draft: JobSetDraft) -> None:
    draft.set("Suspended", True, "SuspendedJobs", "jobset is suspended")
    draft.set("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")
    running = [job for job in buckets.active if not job.is_suspended and not job.is_deleting]
    draft.writes += [build_patch(JOBS, job, {"spec": {"suspend": True}}) for job in running]


def resume(jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft) -> None:
    in_order = startup.is_in_order(jobset)
    rests = True
    for replicated in jobset.replicated_jobs:
        if not startup.may_start(jobset, replicated, draft):
            continue
        if in_order and startup.is_started(replicated, draft):
            continue
        for job in select(buckets.active, replicated["name"]):
            if not job.is_suspended or job.is_deleting:
                continue
            template = build_template_patch(job, replicated)
            if template and not _has_come_to_rest(job):
                rests = False
                continue
            spec = {"suspend": False, **({"template": template} if template else {})}
            draft.write(build_patch(JOBS, job, {"spec": spec}))
        if in_order:
            startup.note_progress(draft)
            return
    if rests:
        draft.set("Suspended", False, "ResumeJobs", "jobset is resumed")


def _has_come_to_rest(job: Job) -> bool:
    started = "startTime" in job.status and not job.is_true("Suspended")
    return not started and not job.active


def build_template_patch(job: Job, replicated: Fields) -> Object:
    """The additions of the ReplicatedJob's template to the Job's. They are merged, because others also change the Job's
    template; so fields removed from the JobSet remain in the Job."""
    have, want = job.template, read_fields(replicated["template"], "spec", "template")
    have_spec, want_spec = read_spec(have), read_spec(want)
    meta = {
        "labels": _add_keys(read_labels(have), read_labels(want)),
        "annotations": _add_keys(read_annotations(have), read_annotations(want)),
    }
    selectors = read_fields(have_spec, "nodeSelector"), read_fields(want_spec, "nodeSelector")
    spec: Object = {"nodeSelector": _add_keys(*selectors)}
    for key in ("tolerations", "schedulingGates"):
        old = list(list_items(have_spec, key))
        new = [item for item in list_items(want_spec, key) if item not in old]
        spec[key] = [*old, *new] if new else []
    parts = {"metadata": _without_empty(meta), "spec": _without_empty(spec)}
    return _without_empty(parts)


def _add_keys(have: Mapping[str, str], want: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in want.items() if have.get(key) != value}


def _without_empty(value: Fields) -> Object:
    return {key: item for key, item in value.items() if item}
