"""Invariants that hold at every write. One function each: returns a message if it is violated, else None.

A `Step` is one event of the store with the object before and after it, the writer, and the state of all objects before
it (`shadow`). Checks never change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.acting import SERVER
from tests.simulation.expected_retention import SeenState
from tests.simulation.machine import read_restarts
from tests.simulation.timing import Timers, find_end, get_pause, get_start
from trainmaster.api import labels
from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS, OPERATOR_NAME
from trainmaster.apiserver.stored import bucket_of

TRAIN_JOBS, JOB_SETS, JOBS, PODS = (
    "trainer.kubeflow.org/trainjobs",
    "jobset.x-k8s.io/jobsets",
    "batch/jobs",
    "pods",
)
V1_BUCKETS = {framework.singular: bucket_of(framework.gvr) for framework in FRAMEWORKS}
"""Controller to the kind of v1 job that it reconciles."""
TRAINING = (TRAIN_JOBS, *V1_BUCKETS.values())
"""The kinds that users submit and that have a TTL."""
TERMINAL = {
    TRAIN_JOBS: ("Complete", "Failed"),
    JOB_SETS: ("Completed", "Failed"),
    JOBS: ("Complete", "Failed"),
    **dict.fromkeys(V1_BUCKETS.values(), ("Succeeded", "Failed")),
}
KEEPERS = {"trainjob": TRAIN_JOBS, "jobset": JOB_SETS, "job": JOBS, "scheduler": PODS, **V1_BUCKETS}
"""Controller to the kind that it reconciles."""
BUCKETS = {
    "TrainJob": TRAIN_JOBS,
    "JobSet": JOB_SETS,
    "Job": JOBS,
    **{framework.kind: bucket_of(framework.gvr) for framework in FRAMEWORKS},
}
OWN_KINDS = {bucket: kind for kind, bucket in BUCKETS.items()}
_OWNED = (
    JOB_SETS,
    JOBS,
    PODS,
    "services",
    "configmaps",
    "serviceaccounts",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
)
"""The kinds that controllers create for a job."""


@dataclass
class Memory:
    """Data that checks keep during a run, because the store does not."""

    ended_pods: dict[str, set[str]] = field(default_factory=dict)
    """Job uid to uids of its Pods that have failed or were deleted."""
    pods: dict[str, set[str]] = field(default_factory=dict)
    """Job uid to uids of all its Pods."""
    counted: dict[tuple[str, str], int] = field(default_factory=dict)
    """Uids of a v1 job and of its failed Pod to the revision at which the Pod was counted as a restart. A job that
    adopts a Pod that another one has counted counts it, too: it replaces that Pod, as upstream does."""
    restarts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Job uid to the restarts in place of each of its Pods, by uid."""
    timers: Timers = field(default_factory=Timers)
    looks: SeenState = field(default_factory=SeenState)

    def forget_after(self, revision: int) -> None:
        """Called after a crash, which may have lost writes."""
        self.counted = {uids: at for uids, at in self.counted.items() if at <= revision}


@dataclass(frozen=True, slots=True)
class Step:
    actor: str
    bucket: str
    name: str
    revision: int
    before: Object | None
    after: Object | None
    """None: the object is gone."""
    now: float
    """Seconds since the start of the run, independent of the wall clock."""
    shadow: Mapping[tuple[str, str], Object]
    uids: Mapping[str, tuple[str, str]]
    memory: Memory

    def find_owner(self, obj: Object) -> Object | None:
        """The controller of an object, if it exists, by uid."""
        uid = get_controller_uid(obj)
        place = self.uids.get(uid)
        return self.shadow.get(place) if place is not None else None


Check = Callable[[Step], str | None]
STEP_CHECKS: list[tuple[str, Check]] = []


def invariant(number: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        STEP_CHECKS.append((number, check))
        return check

    return register


def get_controller_uid(obj: Object) -> str:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return ""


def find_verdict(bucket: str, obj: Object | None) -> str:
    """The terminal condition of a TrainJob, JobSet or Job; "" while there is none."""
    if obj is None:
        return ""
    conditions = list_conditions(obj)
    return next((kind for kind in TERMINAL.get(bucket, ()) if is_true(conditions, kind)), "")


def get_phase(pod: Object | None) -> str:
    return str(((pod or {}).get("status") or {}).get("phase", "Pending"))


def is_going(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def get_number(obj: Object | None, key: str) -> int:
    return int(((obj or {}).get("status") or {}).get(key) or 0)


def show(step: Step) -> str:
    return f"{step.bucket} {step.name}"


@invariant("I3")
def check_identity(step: Step) -> str | None:
    """A uid never changes under a name without a deletion in between."""
    if step.before is None or step.after is None or step.before["metadata"]["uid"] == step.after["metadata"]["uid"]:
        return None
    return f"{show(step)} changed its uid without having been deleted"


@invariant("I8")
def check_verdict_stays(step: Step) -> str | None:
    old, new = find_verdict(step.bucket, step.before), find_verdict(step.bucket, step.after)
    if not old or step.after is None or old == new:
        return None
    return f"{show(step)} was {old} and is now {new or 'not finished'}"


@invariant("I8")
def check_one_verdict(step: Step) -> str | None:
    if step.after is None or step.bucket not in TERMINAL:
        return None
    conditions = list_conditions(step.after)
    found = [kind for kind in TERMINAL[step.bucket] if is_true(conditions, kind)]
    return f"{show(step)} is {' and '.join(found)} at once" if len(found) > 1 else None


@invariant("I8")
def check_phase_stays(step: Step) -> str | None:
    if step.bucket != PODS or step.before is None or step.after is None:
        return None
    old, new = get_phase(step.before), get_phase(step.after)
    return f"{show(step)} was {old} and is now {new}" if old in ("Succeeded", "Failed") and new != old else None


@invariant("I8")
def check_restarts(step: Step) -> str | None:
    if step.bucket != JOB_SETS or step.after is None:
        return None
    policy = step.after["spec"].get("failurePolicy") or {}
    restarts = get_number(step.after, "restarts")
    if not policy.get("rules") and restarts > policy.get("maxRestarts", 0):
        return f"{show(step)} has {restarts} restarts, at most {policy.get('maxRestarts', 0)} are allowed"
    if step.before is not None and restarts not in (old := get_number(step.before, "restarts"), old + 1):
        return f"{show(step)} went from {old} restarts to {restarts}"
    return None


@invariant("I8")
def check_failures_are_counted_once(step: Step) -> str | None:
    """A Job never counts more failures than it has failed or deleted Pods."""
    if step.bucket != JOBS or step.after is None:
        return None
    has_failed = is_true(list_conditions(step.after), "FailureTarget")
    pods = step.memory.pods if has_failed else step.memory.ended_pods
    known = pods.get(step.after["metadata"]["uid"], set())
    failed = get_number(step.after, "failed")
    return f"{show(step)} counts {failed} failed Pods, there were {len(known)}" if failed > len(known) else None


@invariant("I8")
def check_counts_never_fall(step: Step) -> str | None:
    if step.bucket != JOBS or step.before is None or step.after is None:
        return None
    for key in ("failed", "succeeded"):
        old, new = get_number(step.before, key), get_number(step.after, key)
        if new < old:
            return f"{show(step)}: {key} fell from {old} to {new}"
    return None


@invariant("I8")
def check_nothing_is_made_after_the_end(step: Step) -> str | None:
    if step.before is not None or step.after is None or step.bucket not in (JOB_SETS, JOBS, PODS):
        return None
    owner = step.find_owner(step.after)
    if owner is None or step.actor not in KEEPERS:
        return None
    bucket = step.uids[owner["metadata"]["uid"]][0]
    verdict = find_verdict(bucket, owner)
    return f"{show(step)} is created although its owner is {verdict}" if verdict else None


@invariant("I6")
def check_one_pod_per_index(step: Step) -> str | None:
    """A Job has at most one active Pod per index, because two would have the same rank."""
    if step.bucket != PODS or step.before is not None or step.after is None or step.actor != "job":
        return None
    index = (step.after["metadata"].get("annotations") or {}).get(labels.COMPLETION_INDEX)
    owner = get_controller_uid(step.after)
    if index is None or not owner:
        return None
    for (bucket, name), pod in step.shadow.items():
        if bucket != PODS or name == step.name or get_controller_uid(pod) != owner or is_going(pod):
            continue
        same = (pod["metadata"].get("annotations") or {}).get(labels.COMPLETION_INDEX) == index
        if same and get_phase(pod) not in ("Succeeded", "Failed"):
            return f"{show(step)} is created although {name} has index {index} already"
    return None


@invariant("I6")
def check_attempt_is_current(step: Step) -> str | None:
    """No Job is created for an attempt that is over."""
    if step.bucket != JOBS or step.before is not None or step.after is None or step.actor != "jobset":
        return None
    owner = step.find_owner(step.after)
    attempt = int((step.after["metadata"].get("labels") or {}).get(labels.RESTART_ATTEMPT, "0"))
    restarts = get_number(owner, "restarts")
    return f"{show(step)} is of attempt {attempt}, the JobSet is at {restarts}" if attempt < restarts else None


def is_orphan_of(actor: str, obj: Object) -> bool:
    """Whether the controller of a kind of v1 job may adopt the object, or could own it in a view that lags."""
    marks = obj["metadata"].get("labels") or {}
    return not get_controller_uid(obj) and marks.get(OPERATOR_NAME) == f"{actor}-controller"


@invariant("I7")
def check_ownership(step: Step) -> str | None:
    """A controller changes and deletes only its own object and children with that object's uid as their owner."""
    kept = KEEPERS.get(step.actor)
    if kept is None or kept == step.bucket or step.before is None:
        return None
    if step.bucket not in _OWNED or is_orphan_of(step.actor, step.before):
        return None
    for reference in step.before["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == OWN_KINDS.get(kept):
            return None
    return f"{step.actor} touches {show(step)}, which it does not own"


@invariant("I7")
def check_collection(step: Step) -> str | None:
    """Garbage collection deletes no object whose owner exists."""
    if step.actor != SERVER or step.before is None or is_going(step.before):
        return None
    if step.after is not None and not is_going(step.after):
        return None
    owners = step.before["metadata"].get("ownerReferences") or ()
    for reference in owners:
        place = step.uids.get(reference["uid"])
        owner = step.shadow.get(place) if place is not None else None
        if owner is not None and not is_going(owner):
            return f"garbage collection takes {show(step)} although its {reference['kind']} is there"
    return None


@invariant("I13")
def check_ttl_is_over(step: Step) -> str | None:
    if step.actor != "jobset" or step.bucket != JOB_SETS or step.before is None:
        return None
    if is_going(step.before) or (step.after is not None and not is_going(step.after)):
        return None
    verdict = find_verdict(step.bucket, step.before)
    end = find_end(step.before, verdict) if verdict else None
    ttl = step.before["spec"].get("ttlSecondsAfterFinished")
    if end is None or ttl is None:
        return f"{show(step)} is deleted without an end or a TTL"
    wrong = step.memory.timers.judge(end, ttl, step.now)
    return f"{show(step)} is deleted for its TTL {wrong}" if wrong else None


@invariant("I13")
def check_deadline_is_over(step: Step) -> str | None:
    if step.actor != "trainjob" or step.bucket != TRAIN_JOBS or step.before is None or step.after is None:
        return None
    failed = find_condition(list_conditions(step.after), "Failed")
    if failed is None or failed.get("reason") != "DeadlineExceeded" or find_verdict(step.bucket, step.before):
        return None
    seconds = step.after["spec"].get("activeDeadlineSeconds")
    if seconds is None:
        return None
    wrong = step.memory.timers.judge(get_start(step.before), seconds, step.now)
    return f"{show(step)} fails for its deadline {wrong}" if wrong else None


@invariant("I13")
def check_pause_between_restarts(step: Step) -> str | None:
    """The first restart follows the failure immediately, later ones after 1, 2, 4 ... 60 s."""
    if step.actor != "jobset" or step.bucket != JOB_SETS or step.before is None or step.after is None:
        return None
    old, new = get_number(step.before, "restarts"), get_number(step.after, "restarts")
    series = (step.before["metadata"].get("annotations") or {}).get(labels.RESTART_SERIES)
    if new != old + 1 or not old or series is not None or step.before["spec"].get("suspend"):
        return None
    failures = [
        end
        for (bucket, _), job in step.shadow.items()
        if bucket == JOBS and get_controller_uid(job) == step.before["metadata"]["uid"]
        if (end := find_end(job, "Failed")) is not None
    ]
    # The first failure counts; after the clock was set, it is unknown which one that was.
    wrongs = [step.memory.timers.judge(end, min(60, 2 ** (old - 1)), step.now) for end in failures]
    return f"{show(step)} restarts {wrongs[0]}" if wrongs and all(wrongs) else None


@invariant("I13")
def check_pause_before_replacement(step: Step) -> str | None:
    """Failed Pods of a Job are replaced after 10, 20, 40 ... 600 s."""
    if step.bucket != PODS or step.before is not None or step.after is None or step.actor != "job":
        return None
    job = step.find_owner(step.after)
    pause = get_pause(job) if job is not None else None
    if pause is None:
        return None
    key, failures = pause
    wrong = step.memory.timers.judge(key, min(600, 10 * 2 ** (failures - 1)), step.now)
    return f"{show(step)} replaces a failed Pod {wrong}" if wrong else None


@invariant("I21")
def check_stall(step: Step) -> str | None:
    """Only a job that runs stalls, and it is restarted because of that no more often than its runtime allows."""
    if step.actor != "trainjob" or step.bucket != TRAIN_JOBS or step.before is None or step.after is None:
        return None
    old, new = (obj.get("status") or {} for obj in (step.before, step.after))
    runs = not find_verdict(step.bucket, step.after) and not step.after["spec"].get("suspend") and "waiting" not in new
    if "stalled" in new and "stalled" not in old and not runs:
        return f"{show(step)} stalls although it does not run"
    restarts = (new.get("stalls") or {}).get("restarts", 0)
    jobset = step.shadow.get((JOB_SETS, step.name))
    if restarts > (old.get("stalls") or {}).get("restarts", 0) and jobset is not None:
        most = (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
        if restarts > most:
            return f"{show(step)} is restarted {restarts} times because of stalls, at most {most} are allowed"
    return None


def remember(step: Step) -> None:
    """Records data for later checks; called before them."""
    if step.bucket != PODS:
        return
    obj: Any = step.after if step.after is not None else step.before
    owner = get_controller_uid(obj)
    if not owner:
        return
    step.memory.pods.setdefault(owner, set()).add(obj["metadata"]["uid"])
    if restarts := read_restarts(obj):
        step.memory.restarts.setdefault(owner, {})[obj["metadata"]["uid"]] = restarts
    if step.after is None or is_going(step.after) or get_phase(step.after) == "Failed":
        step.memory.ended_pods.setdefault(owner, set()).add(obj["metadata"]["uid"])
