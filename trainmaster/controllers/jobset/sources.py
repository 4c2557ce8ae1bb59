"""Which changes wake which JobSets: what they own, and names that they wait for.

A JobSet that found a foreign Job or claim under a name it needs must hear when that one goes. Such an object has no
reference to the JobSet, but its name holds the JobSet's name: `<JobSet>-<ReplicatedJob>-<index>` and
`<template>-<JobSet>`. A few look-ups by name find it; nothing is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.controllers.jobset import leftovers, ttl
from trainmaster.controllers.jobset.children import sort_jobs
from trainmaster.controllers.jobset.places import list_replicated
from trainmaster.controllers.jobset.status import build_counts, is_finished
from trainmaster.controllers.ownership import find_controller
from trainmaster.controllers.waiting import find_annotated
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_owner, map_to_self


def map_jobset(view: View, jobset: Object) -> Iterable[Request]:
    return () if _is_settled(view, jobset) else map_to_self(view, jobset)


def _is_settled(view: View, jobset: Object) -> bool:
    """Ended, and a look would find nothing to do and nothing to wait for. What is over is not looked at, at start nor
    later; there may be very many of them."""
    spec = jobset["spec"]
    if not is_finished(jobset) or "ttlSecondsAfterFinished" in spec or find_annotated(jobset) is not None:
        return False
    templates = (replicated["template"].get("spec") or {} for replicated in list_replicated(jobset))
    if any("ttlSecondsAfterFinished" in template for template in templates):
        return False
    buckets = sort_jobs(jobset, view.owned(JOBS, jobset["metadata"]["namespace"], jobset["metadata"]["uid"]))
    is_left = buckets.active or buckets.previous
    return not is_left and build_counts(jobset, buckets) == jobset["status"].get("replicatedJobsStatus")


def map_job(view: View, job: Object) -> Iterator[Request]:
    if _is_over_with_its_jobset(view, job):
        return
    parts = job["metadata"]["name"].split("-")
    candidates = ["-".join(parts[:length]) for length in range(1, len(parts) - 1)]
    yield from _map_names(view, job, candidates)


def _is_over_with_its_jobset(view: View, job: Object) -> bool:
    conditions = list_conditions(job)
    reference = find_controller(job)
    if reference is None or not (is_true(conditions, "Complete") or is_true(conditions, "Failed")):
        return False
    jobset = view.find(JOB_SETS, job["metadata"]["namespace"], reference["name"])
    return jobset is not None and jobset["metadata"]["uid"] == reference["uid"] and _is_settled(view, jobset)


def map_claim(view: View, claim: Object) -> Iterator[Request]:
    parts = claim["metadata"]["name"].split("-")
    candidates = ["-".join(parts[start:]) for start in range(1, len(parts))]
    yield from _map_names(view, claim, candidates)


def map_service(view: View, service: Object) -> Iterator[Request]:
    """The owner; and the JobSet of that name, which makes do with somebody else's Service as long as it is there."""
    meta = service["metadata"]
    owners = tuple(map_to_owner("JobSet")(view, service))
    yield from owners
    if not owners and view.find(JOB_SETS, meta["namespace"], meta["name"]) is not None:
        yield Request(meta["namespace"], meta["name"])


def _map_names(view: View, obj: Object, candidates: Iterable[str]) -> Iterator[Request]:
    """The owner, and JobSets of those names that wait for something."""
    namespace = obj["metadata"]["namespace"]
    reference = find_controller(obj)
    owner = reference["name"] if reference is not None and reference.get("kind") == "JobSet" else ""
    if owner:
        yield Request(namespace, owner)
    for name in candidates:
        jobset = view.find(JOB_SETS, namespace, name) if name != owner else None
        if jobset is not None and find_annotated(jobset) is not None:
            yield Request(namespace, name)


SOURCES = (
    ChangeSource(JOB_SETS, map_jobset),
    ChangeSource(JOBS, map_job),
    ChangeSource(PODS, leftovers.map_pod),
    ChangeSource(SERVICES, map_service),
    ChangeSource(PERSISTENT_VOLUME_CLAIMS, map_claim),
    ChangeSource(TRAIN_JOBS, ttl.map_trainjob),
)
