"""Invariants of v1 jobs that hold at every write and for every plan. Registered with those of `steps`.

A plan is compared with the view from which it was computed, which may lag; so what it deletes can be checked exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation import steps
from tests.simulation.machine import read_restarts, read_v1_rank
from tests.simulation.steps import (
    PODS,
    V1_BUCKETS,
    Step,
    find_verdict,
    get_controller_uid,
    get_number,
    get_phase,
    is_going,
    show,
)
from tests.simulation.timing import find_active_since
from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.pods.phases import is_over
from trainmaster.api.resources import PODS as POD_GVR
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.apiserver.stored import bucket_of
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request

V1_KINDS = {framework.gvr: framework for framework in FRAMEWORKS}
_BUCKETS = tuple(V1_BUCKETS.values())


def read_policy(job: Object) -> Object:
    return job["spec"].get("runPolicy") or {}


def list_restarting(job: Object | None) -> list[str]:
    return list(((job or {}).get("status") or {}).get("restartingPods") or ())


# At every write


@steps.invariant("I8")
def check_completion_time(step: Step) -> str | None:
    """It is stored together with the final condition, and never changes."""
    if step.bucket not in _BUCKETS or step.after is None:
        return None
    new = (step.after.get("status") or {}).get("completionTime")
    if bool(find_verdict(step.bucket, step.after)) != bool(new):
        return f"{show(step)} is {find_verdict(step.bucket, step.after) or 'not finished'}, completionTime {new}"
    old = ((step.before or {}).get("status") or {}).get("completionTime")
    return f"{show(step)}: completionTime changed from {old} to {new}" if old and new != old else None


@steps.invariant("I8")
def check_restarts_are_counted_once(step: Step) -> str | None:
    if step.bucket not in _BUCKETS or step.after is None:
        return None
    new = [uid for uid in list_restarting(step.after) if uid not in list_restarting(step.before)]
    old_count, count = get_number(step.before, "restarts"), get_number(step.after, "restarts")
    if count != old_count + len(new):
        return f"{show(step)} went from {old_count} restarts to {count} for {len(new)} failed Pods"
    job = step.after["metadata"]["uid"]
    again = [uid for uid in new if (job, uid) in step.memory.counted]
    step.memory.counted.update({(job, uid): step.revision for uid in new})
    if again:
        return f"{show(step)} counts the Pod with uid {again[0]} a second time"
    failed = step.memory.ended_pods.get(job, set())
    wrong = [uid for uid in new if uid not in failed]
    return f"{show(step)} counts the Pod with uid {wrong[0]}, which has not failed" if wrong else None


@steps.invariant("I8")
def check_backoff_limit(step: Step) -> str | None:
    """A job never restarts more often than allowed, and never fails for the limit before it is reached."""
    if step.bucket not in _BUCKETS or step.after is None:
        return None
    limit, count = read_policy(step.after).get("backoffLimit"), get_number(step.after, "restarts")
    if limit is None:
        return None
    if count > get_number(step.before, "restarts") and count >= limit:
        return f"{show(step)} has {count} restarts, its backoffLimit is {limit}"
    failed = find_condition(list_conditions(step.after), "Failed")
    if failed is None or "backoff limit" not in failed["message"] or find_verdict(step.bucket, step.before):
        return None
    uid = step.after["metadata"]["uid"]
    ended = len(step.memory.ended_pods.get(uid, ())) + sum(step.memory.restarts.get(uid, {}).values())
    return f"{show(step)} fails for its backoffLimit {limit} after {ended} failures" if ended < limit else None


@steps.invariant("I13")
def check_deadline_is_over(step: Step) -> str | None:
    if step.bucket not in _BUCKETS or step.actor not in V1_BUCKETS or step.before is None or step.after is None:
        return None
    failed = find_condition(list_conditions(step.after), "Failed")
    seconds = read_policy(step.after).get("activeDeadlineSeconds")
    if failed is None or "deadline" not in failed["message"] or find_verdict(step.bucket, step.before):
        return None
    start = find_active_since(step.after)
    if seconds is None or start is None:
        return f"{show(step)} fails for a deadline that it does not have"
    wrong = step.memory.timers.judge(start, seconds, step.now)
    return f"{show(step)} fails for its deadline {wrong}" if wrong else None


@steps.invariant("I6")
def check_one_pod_of_a_rank(step: Step) -> str | None:
    """No Pod is created while another one of its index exists, even if that one is being deleted."""
    if step.bucket != PODS or step.before is not None or step.after is None or step.actor not in V1_BUCKETS:
        return None
    owner, rank = get_controller_uid(step.after), read_v1_rank(step.after)
    for (bucket, name), pod in step.shadow.items():
        if bucket != PODS or name == step.name or get_controller_uid(pod) != owner or is_over(pod):
            continue
        if read_v1_rank(pod) == rank:
            return f"{show(step)} is created although {name} has its index"
    return None


# Plans


def check_v1_plan(gvr: GVR, view: View, request: Request, plan: Plan) -> Iterator[tuple[str, str]]:
    """(number, message) of each violation: a plan deletes exactly the Pods that it should, and ends a job that has
    reached its limit."""
    job = view.find(gvr, request.namespace, request.name)
    if job is None or is_going(job):
        return
    deleted = {write.name: write.uid for write in plan.writes if isinstance(write, Delete) and write.gvr == POD_GVR}
    pods = {pod["metadata"]["name"]: pod for pod in view.owned(POD_GVR, request.namespace, job["metadata"]["uid"])}
    adopted = {write.name for write in plan.writes if isinstance(write, Patch) and write.gvr == POD_GVR}
    foreign = sorted(set(deleted) - set(pods) - adopted)
    if foreign:
        yield "I7", f"deletes {foreign[0]}, which {job['kind']} {request.name} does not own"
    present = {name: pod for name, pod in pods.items() if not is_going(pod)}
    if find_verdict(bucket_of(gvr), job):
        made = [write for write in plan.writes if isinstance(write, Create)]
        if made:
            yield "I8", f"creates {made[0].gvr.plural} for {job['kind']} {request.name}, which has ended"
        wanted = {name for name, pod in present.items() if is_cleaned(job, pod)}
        if wanted != set(deleted):
            yield "I8", f"deletes {sorted(deleted)} after the end of {request.name}, and should delete {sorted(wanted)}"
    elif not read_policy(job).get("suspend"):
        for name in set(deleted) & set(present):
            if deleted[name] not in list_restarting(job) and not _is_surplus(gvr, job, present[name], present):
                yield "I8", f"deletes {name}, which is neither counted as a restart nor too many"
        running = [pod for pod in present.values() if get_phase(pod) == "Running"]
        total = get_number(job, "restarts")
        counted = [pod for pod in running if not _is_surplus(gvr, job, pod, present) and _is_restarted(gvr, job, pod)]
        total += sum(map(read_restarts, counted))
        limit = read_policy(job).get("backoffLimit")
        if limit is not None and total >= max(1, limit) and not _ends(plan):
            yield "I8", f"goes on with {request.name} after {total} restarts, its backoffLimit is {limit}"


def _ends(plan: Plan) -> bool:
    conditions = (plan.status.patch.get("status") or {}).get("conditions") or () if plan.status is not None else ()
    return any(one["type"] in ("Succeeded", "Failed") and one["status"] == "True" for one in conditions)


def is_cleaned(job: Object, pod: Object) -> bool:
    """Whether the Pod of a finished job is deleted."""
    policy = read_policy(job).get("cleanPodPolicy") or "None"
    return policy == "All" or (policy == "Running" and not is_over(pod))


def _is_restarted(gvr: GVR, job: Object, pod: Object) -> bool:
    """Whether restarts of its containers count: by the job's policy, also for a Pod adopted from another job."""
    rank = read_v1_rank(pod)
    replicas = {kind.lower(): spec for kind, spec in job["spec"][V1_KINDS[gvr].replicas_field].items()}
    return rank is not None and replicas[rank[0]].get("restartPolicy") != "Never"


def _is_surplus(gvr: GVR, job: Object, pod: Object, pods: dict[str, Object]) -> bool:
    rank = read_v1_rank(pod)
    replicas = {kind.lower(): spec for kind, spec in job["spec"][V1_KINDS[gvr].replicas_field].items()}
    if rank is None or rank[0] not in replicas or int(rank[1]) >= replicas[rank[0]].get("replicas", 1):
        return True
    return sum(read_v1_rank(other) == rank for other in pods.values()) > 1
