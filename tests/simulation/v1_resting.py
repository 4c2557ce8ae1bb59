"""Invariants of v1 jobs at rest. Imported for its checks, which register themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.simulation import quiescence
from tests.simulation.machine import read_restarts, read_v1_rank
from tests.simulation.quiescence import Rest, get_name
from tests.simulation.sharing import get_least, has_room
from tests.simulation.steps import PODS, find_verdict, get_controller_uid, get_phase
from tests.simulation.v1_checks import V1_KINDS, is_cleaned, list_restarting, read_policy
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.pods.phases import is_over
from trainmaster.api.v1jobs.frameworks import MPI, V1Framework
from trainmaster.api.v1jobs.replicas import read_replicas
from trainmaster.apiserver.stored import bucket_of

_SERVICES = "services"


@quiescence.invariant("I9")
def check_every_v1_job_is_where_it_should_be(rest: Rest) -> Iterable[str]:
    for framework in V1_KINDS.values():
        for job in rest.list(bucket_of(framework.gvr)):
            problem = _judge(rest, framework, job)
            if problem:
                yield f"{get_name(job)} {problem}"


def _judge(rest: Rest, framework: V1Framework, job: Object) -> str:
    pods, services = rest.list_owned(PODS, job), rest.list_owned(_SERVICES, job)
    if find_verdict(bucket_of(framework.gvr), job):
        return _judge_finished(job, pods, services)
    if read_policy(job).get("suspend"):
        if pods or services:
            return f"is suspended and {get_name([*pods, *services][0])} is still there"
        return "" if is_true(list_conditions(job), "Suspended") else "should be suspended and is not"
    waiting = (job.get("status") or {}).get("waiting")
    if waiting:
        return _judge_waiting(rest, job, str(waiting.get("reason")))
    return _judge_running(rest, framework, job, pods, services)


def _judge_finished(job: Object, pods: Iterable[Object], services: Iterable[Object]) -> str:
    left = [pod for pod in pods if is_cleaned(job, pod)]
    if left:
        return f"has ended and {get_name(left[0])} is still there"
    if read_policy(job).get("cleanPodPolicy") == "All":
        for service in services:
            return f"has ended and {get_name(service)} is still there"
    return ""


def _judge_waiting(rest: Rest, job: Object, reason: str) -> str:
    """The reason for waiting must still be true; otherwise the job would wait forever."""
    prefix = f"{job['metadata']['namespace']}/{job['metadata']['name']}-"
    uid = job["metadata"]["uid"]
    if reason == "NameConflict":
        holds = any(
            name.startswith(prefix) and get_controller_uid(obj) != uid for (_, name), obj in rest.objects.items()
        )
    elif reason == "Queued":
        others = (pod for pod in rest.list(PODS) if get_controller_uid(pod) != uid)
        holds = any(pod["spec"].get("nodeName") and not is_over(pod) for pod in others)
    else:
        holds = reason == "Unschedulable"
    return "" if holds else f"waits for {reason}, which is over"


def _judge_running(
    rest: Rest, framework: V1Framework, job: Object, pods: Sequence[Object], services: Sequence[Object]
) -> str:
    """Every index has one Pod, which runs or has succeeded, and at least one runs (I11). Pods beyond `minAvailable` may
    wait for room."""
    found = sorted(read_v1_rank(pod) or ("", "") for pod in pods)
    wanted = sorted(
        (replica.word, str(index))
        for replica in read_replicas(framework, job["spec"]).values()
        for index in range(replica.count)
    )
    if found != wanted:
        return f"runs with Pods {found}, and should run with {wanted}"
    if framework is not MPI and len(services) != len(wanted):
        return f"runs with {len(services)} Services for {len(wanted)} Pods"
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    if waiting and len(pods) - len(waiting) < (get_least(job) or len(pods)):
        return f"runs and {get_name(waiting[0])} has no node"
    idle = [pod for pod in waiting if has_room(rest, pod)]
    if idle:
        return f"runs and {get_name(idle[0])} has no node although there is room"
    wrong = [pod for pod in pods if pod not in waiting and get_phase(pod) not in ("Running", "Succeeded")]
    if wrong:
        return f"runs and {get_name(wrong[0])} is {get_phase(wrong[0])}"
    if list_restarting(job):
        return "has replaced all its failed Pods and still names some"
    return _judge_counts(job, pods)


def _judge_counts(job: Object, pods: Sequence[Object]) -> str:
    alive = [pod for pod in pods if get_phase(pod) == "Running"]
    if not alive:
        return "should run and nothing of it does"
    statuses = (job.get("status") or {}).get("replicaStatuses") or {}
    for name, entry in statuses.items():
        active = sum((read_v1_rank(pod) or ("", ""))[0] == name.lower() for pod in alive)
        if entry.get("active", 0) != active:
            return f"says {entry.get('active', 0)} active Pods of {name}, there are {active}"
    return ""


@quiescence.invariant("I13")
def check_no_v1_job_outlives_its_deadline(rest: Rest) -> Iterable[str]:
    for framework in V1_KINDS.values():
        for job in rest.list(bucket_of(framework.gvr)):
            policy = read_policy(job)
            is_active = not find_verdict(bucket_of(framework.gvr), job) and not policy.get("suspend")
            if is_active and policy.get("activeDeadlineSeconds") is not None:
                yield f"{get_name(job)} has outlived its deadline"


@quiescence.invariant("I10")
def check_v1_stories_end_as_told(rest: Rest) -> Iterable[str]:
    """A job without interference ends as its Pods did, if they are still there."""
    for framework in V1_KINDS.values():
        for job in rest.list(bucket_of(framework.gvr)):
            verdict, pods = find_verdict(bucket_of(framework.gvr), job), rest.list_owned(PODS, job)
            if not verdict or not pods or job["metadata"]["name"] in rest.disturbed:
                continue
            if (read_policy(job).get("cleanPodPolicy") or "None") != "None":
                continue
            phases = {get_phase(pod) for pod in pods}
            if verdict == "Failed" and any(map(read_restarts, pods)):
                continue  # for its backoffLimit, while all Pods ran
            if verdict not in phases and "deadline" not in str(list_conditions(job)):
                yield f"{get_name(job)} is {verdict}, and its Pods are {sorted(phases)}"
