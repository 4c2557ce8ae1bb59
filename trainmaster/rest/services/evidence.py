"""The evidence of jobs, as it is kept, or collected now. Whether the caller may read the job is checked before."""

from __future__ import annotations

import asyncio

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_status
from trainmaster.history import evidence
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.rest.callers import ACCESS_REVIEWS, Caller
from trainmaster.rest.contract import EvidenceAccess
from trainmaster.rest.problems import Problem, not_found

_ON_CLUSTER = "evidence is collected on the machine of a home, not on a cluster"


async def read_evidence(access: EvidenceAccess, uid: str, attempt: int | None) -> Object:
    """Of the attempt, else of the last one that has any. Raises Problem 404."""
    if access.results is None:
        raise not_found(_ON_CLUSTER)
    found = await asyncio.to_thread(evidence.find, access.results, uid, attempt)
    kept = await asyncio.to_thread(evidence.list_kept, access.results, uid)
    if found is None:
        which = "" if attempt is None else f" of attempt {attempt}"
        there = f"there is evidence of {', '.join(map(str, kept))}" if kept and attempt is not None else ""
        hint = there or "POST to this path collects it while the job runs"
        raise not_found(f"there is no evidence{which}", hint=hint)
    return {**found, "attempts": kept}


async def collect_evidence(access: EvidenceAccess, caller: Caller, job: TrainingJob) -> Object:
    """Raises Problem 403 for callers who may not start programs in the job's Pods, 409 if none of them runs."""
    attributes = {"verb": "create", "resource": "pods", "subresource": "exec", "namespace": job.namespace}
    review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": "SelfSubjectAccessReview"}
    answer = await caller.client.create(ACCESS_REVIEWS, {**review, "spec": {"resourceAttributes": attributes}})
    if not read_status(answer).get("allowed"):
        raise Problem(403, "forbidden", "this is for those who may run programs in the job's Pods (pods/exec)")
    if access.collect is None or access.results is None:
        raise Problem(409, "not-running", _ON_CLUSTER if access.results is None else "this server runs no Pods")
    found = await access.collect(job.uid)
    if found is None:
        raise Problem(409, "not-running", "no rank of the job runs", hint="GET shows what was collected before")
    return {**found, "attempts": await asyncio.to_thread(evidence.list_kept, access.results, job.uid)}
