"""Why a job waits in a queue of Kueue, and what to do. Pure; from its Workload, which has Kueue's own words.

A job in a queue is suspended by Kueue, not by a user, until there is quota for all of its Pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_text
from trainmaster.jobs.janitor import describe_age
from trainmaster.jobs.models.training import WAITING, TrainingJob, TrainingState
from trainmaster.jobs.models.workloads import ADMITTED, EVICTED, PREEMPTED, QUOTA_RESERVED, QueuedWorkload
from trainmaster.jobs.queueing.names import QUEUED, get_queue
from trainmaster.kit.clock import parse_time

_INADMISSIBLE = ("Inadmissible", "Misconfigured", "Suspended", "AdmissionGated")
_TOO_LARGE = "maximum capacity"
"""Part of Kueue's message about what a queue could never have."""
_PREEMPTOR = re.compile(r"\(UID: (?P<workload>[^,)]+), JobUID: (?P<job>[^)]+)\) due to (?P<why>[^;]+)")


@dataclass(frozen=True, slots=True)
class QueuePosition:
    position: int
    """In its LocalQueue, from 1."""
    length: int
    ahead: tuple[str, ...] = ()
    """The jobs before it, NAMESPACE/NAME."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known about a job in a queue."""

    workload: QueuedWorkload | None = None
    """None if Kueue has made none, or it may not be read."""
    cluster_queue: str = ""
    """That of the LocalQueue; "" if unknown."""
    position: QueuePosition | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    """NAMESPACE/NAME of other jobs, by the uid of their Workload."""
    unknown: tuple[str, ...] = ()
    """What could not be found out, and why."""


@dataclass(frozen=True, slots=True)
class QueueWait:
    """The explanation of one job."""

    message: str
    """One sentence, without the reason."""
    since: str = ""
    position: QueuePosition | None = None
    unblock: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    workload: QueuedWorkload | None = None

    @property
    def state(self) -> TrainingState:
        return TrainingState(WAITING, QUEUED, self.message)


def explain_wait(job: TrainingJob, facts: QueueFacts, now: datetime) -> QueueWait:
    workload = facts.workload
    queue = get_queue(job) if workload is None else workload.queue
    cluster_queue = facts.cluster_queue if workload is None else workload.cluster_queue or facts.cluster_queue
    where = f"LocalQueue {queue}" + (f" of ClusterQueue {cluster_queue}" if cluster_queue else "")
    if workload is None:
        text, todo = _tell_missing(job, facts)
        return QueueWait(f"in {where}: {text}", unblock=todo, facts=facts.unknown)
    condition = workload.find_condition(QUOTA_RESERVED)
    text, todo = _tell_state(workload, condition, cluster_queue)
    return QueueWait(
        f"in {where}: {text}",
        since=read_text(condition, "lastTransitionTime") or workload.created_at,
        position=facts.position,
        unblock=todo,
        facts=(*_list_facts(workload, facts, now), *facts.unknown),
        workload=workload,
    )


def _tell_missing(job: TrainingJob, facts: QueueFacts) -> tuple[str, tuple[str, ...]]:
    if facts.unknown:
        return "it is suspended, and not known by whom", ()
    advice = f"Kueue needs {job.gvr.group}/{job.word} among its integrations.frameworks, and a moment"
    return "Kueue has made no Workload for it yet", (advice,)


def _tell_state(workload: QueuedWorkload, condition: Fields | None, cluster_queue: str) -> tuple[str, tuple[str, ...]]:
    """What it waits for, and what to do."""
    message, reason = read_text(condition, "message"), read_text(condition, "reason")
    place = f"-n {workload.namespace}"
    if not workload.is_active:
        why = read_text(workload.find_condition(EVICTED), "message") or "its Workload is not active"
        patch = """--type merge -p '{"spec": {"active": true}}'`"""
        return f"Kueue does not try it any more: {why}", (
            f"`kubectl patch workload {workload.name} {place} {patch} lets Kueue try again",
        )
    if workload.is_true(ADMITTED):
        return "Kueue has admitted it, and is about to start it", ()
    if workload.is_true(QUOTA_RESERVED):
        checks = workload.waiting_checks
        names = ", ".join(filter(None, map(_tell_check, checks)))
        look = tuple(f"`kubectl describe admissioncheck {check['name']}` shows who decides" for check in checks)
        return f"it has quota, and waits for admission checks: {names or 'their results'}", look
    if reason in _INADMISSIBLE:
        return f"Kueue cannot admit it: {message}", (_advise_inadmissible(workload, message, cluster_queue),)
    if reason == "ExceedsMaxQuota" or _TOO_LARGE in message:
        less = "ask for less (resourcesPerNode, numNodes), or have the quota raised"
        return f"it needs more than the queue can ever have: {message}", (less,)
    more = "a job with a higher priority goes first: label kueue.x-k8s.io/priority-class"
    todo = ["it starts by itself when there is quota for all of its Pods", more]
    if cluster_queue:
        todo.insert(1, f"`kubectl describe clusterqueue {cluster_queue}` shows the quota and its use")
    # Of jobs that ask for the same, Kueue judges one.
    return message or "it waits for its turn", tuple(todo)


def _tell_check(check: Fields) -> str:
    message = read_text(check, "message")
    return f"{read_text(check, 'name')} is {read_text(check, 'state')}" + (f" ({message})" if message else "")


def _advise_inadmissible(workload: QueuedWorkload, message: str, cluster_queue: str) -> str:
    place = f"-n {workload.namespace}"
    if message.startswith("LocalQueue") and "exist" in message:
        return (
            f"create it, or name another one in the label: `kubectl get localqueues {place}` shows those that there are"
        )
    if message.startswith("ClusterQueue") and "exist" in message:
        return f"create it, or have LocalQueue {workload.queue} name another one"
    if message.startswith("ClusterQueue"):
        return f"`kubectl describe clusterqueue {cluster_queue or message.split()[1]}` shows what it lacks"
    return f"`kubectl describe localqueue {workload.queue} {place}` shows why"


def _list_facts(workload: QueuedWorkload, facts: QueueFacts, now: datetime) -> Iterator[str]:
    yield f"its Workload is {workload.name}"
    evicted, preempted = workload.find_condition(EVICTED), workload.find_condition(PREEMPTED)
    if workload.is_true(PREEMPTED):
        yield f"preempted {_tell_age(preempted, now)} {_tell_preemptor(read_text(preempted, 'message'), facts)}"
    elif workload.is_true(EVICTED) and workload.is_active:
        text = f"({read_text(evicted, 'reason')}): {read_text(evicted, 'message')}"
        yield f"evicted {_tell_age(evicted, now)} {text}"
    count, until = workload.requeue
    left = (parse_time(until) - now).total_seconds() if until else 0.0
    if left > 0:
        yield f"Kueue tries again in {describe_age(left)}, at {until}" + (f", after {count} times" if count else "")
    for check in workload.waiting_checks:
        if not workload.is_true(QUOTA_RESERVED):
            yield f"admission check {_tell_check(check)}"


def _tell_age(condition: Fields | None, now: datetime) -> str:
    moment = read_text(condition, "lastTransitionTime")
    return f"{describe_age(max(0.0, (now - parse_time(moment)).total_seconds()))} ago" if moment else "before"


def _tell_preemptor(message: str, facts: QueueFacts) -> str:
    found = _PREEMPTOR.search(message)
    if found is None:
        return f"by another job: {message}"
    who = facts.others.get(found["workload"]) or f"a job that you may not see, with the uid {found['job']}"
    return f"by {who}, because of {found['why'].strip()}"


def read_preemptor(workload: QueuedWorkload | None) -> tuple[str, str]:
    """(uid of its Workload, uid of its job) of who took its place; "" if nobody has."""
    if workload is None or not workload.is_true(PREEMPTED):
        return "", ""
    found = _PREEMPTOR.search(read_text(workload.find_condition(PREEMPTED), "message"))
    return (found["workload"], found["job"]) if found else ("", "")


def read_position(summary: Fields, job: TrainingJob) -> QueuePosition | None:
    """From the pending workloads of its LocalQueue, as Kueue's visibility API tells them."""
    items = list_items(summary, "items")
    mine = [item for item in items if job.uid in [owner.get("uid") for owner in _list_owners(item)]]
    if not mine:
        return None
    place = int(mine[0].get("positionInLocalQueue", 0))
    ahead = sorted((one for one in items if int(one.get("positionInLocalQueue", 0)) < place), key=_get_place)
    return QueuePosition(place + 1, len(items), tuple(QueuedWorkload(one).job_label for one in ahead))


def _get_place(item: Fields) -> int:
    return int(item.get("positionInLocalQueue", 0))


def _list_owners(item: Fields) -> Sequence[Fields]:
    return list_items(item, "metadata", "ownerReferences")
