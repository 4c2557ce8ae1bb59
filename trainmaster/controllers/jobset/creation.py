"""Lists what a JobSet is missing: its Service, its claims, and the Jobs that can start now."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api.labels import EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY
from trainmaster.api.resources import JOBS, SERVICES
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Write
from trainmaster.controllers.jobset import leftovers, startup, volumes
from trainmaster.controllers.jobset.children import ChildJobs, build_job, build_service, get_placement
from trainmaster.controllers.jobset.job_indexes import JobIndexes, get_job_name, list_places
from trainmaster.controllers.jobset.status import JobSetDraft
from trainmaster.controllers.waiting import Waiting
from trainmaster.jobs.models.jobsets import JobSet


def list_missing(view: View, jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft) -> list[Write] | Waiting:
    """In the order of creation. If an old Job still has the name, the new one is created after that Job is gone."""
    writes: list[Write] = []
    if jobset.has_dns and view.find(SERVICES, jobset.namespace, jobset.subdomain) is None:
        writes.append(Create(SERVICES, build_service(jobset)))
    claims = volumes.list_missing(view, jobset, is_started=draft.restarts > 0 or not buckets.is_empty)
    if isinstance(claims, Waiting):
        return claims
    writes += claims
    places = list(_list_places(jobset, buckets, draft))
    left = leftovers.find_leftover(view, jobset, buckets) if places else None
    if left is not None:
        return left
    for place in places:
        name = get_job_name(jobset, place)
        if view.find(JOBS, jobset.namespace, name) is not None:
            text = f'a Job "{name}" exists that does not belong to this JobSet; delete or rename it'
            return Waiting("NameConflict", text)
        writes.append(Create(JOBS, build_job(jobset, place, draft.restarts)))
        _note_placement(jobset, place, draft)
    return writes


def _list_places(jobset: JobSet, buckets: ChildJobs, draft: JobSetDraft) -> Iterator[JobIndexes]:
    """The Jobs to create. With ordered startup, only up to the first ReplicatedJob that has not started."""
    taken = buckets.names
    in_order = startup.is_in_order(jobset) and not jobset.is_suspended
    blocked = bool(buckets.previous) and jobset.restart_strategy == "BlockingRecreate"
    places: dict[str, list[JobIndexes]] = {}
    for place in list_places(jobset):
        places.setdefault(place.replicated["name"], []).append(place)
    for replicated in jobset.replicated_jobs:
        if not startup.may_start(jobset, replicated, draft):
            continue
        if in_order and startup.is_started(replicated, draft):
            continue
        for place in () if blocked else places.get(replicated["name"], ()):
            if get_job_name(jobset, place) not in taken:
                yield place
        if in_order:
            startup.note_progress(draft)
            return
    if in_order:
        startup.note_end(draft)


def _note_placement(jobset: JobSet, place: JobIndexes, draft: JobSetDraft) -> None:
    """Exclusive placement spreads Jobs over nodes. It has no effect on a single node, which is reported once."""
    placement = get_placement(jobset, place.replicated)
    if draft.restarts or place.index or EXCLUSIVE_TOPOLOGY not in placement:
        return
    if NODE_SELECTOR_STRATEGY in placement:
        return
    text = f"there is one node, so all jobs share one value of {placement[EXCLUSIVE_TOPOLOGY]}"
    draft.note(jobset, "ExclusivePlacementApproximated", text, warning=True)
