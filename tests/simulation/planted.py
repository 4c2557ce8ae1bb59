"""Bugs to plant into the real code, to see that the simulation finds them (test plan L8).

Each bug has occurred in similar systems. It either changes the input or output of a reconciler, or patches one function
of the store, the registry or the engine. `tests/sim` verifies that each is found within a few seeds, and that the same
seeds pass without it.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tests.simulation.node import SimNode
from tests.simulation.patching import AttributePatch, ChangePasses, change_passes
from trainmaster.api.labels import DEVICES
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.apiserver.gc import GarbageCollector
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch, Write
from trainmaster.controllers.job import facts
from trainmaster.controllers.jobset import leftovers
from trainmaster.engine.controller import Controller
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import Plan, ReconcileInSteps
from trainmaster.engine.queue import WorkQueue
from trainmaster.kit.steps import Steps
from trainmaster.kit.timeline import Now
from trainmaster.store.contract import EventType, StoredRecord
from trainmaster.store.state import StoreState


@dataclass(frozen=True)
class Planted:
    name: str
    """What the bug does, for the test's name."""
    invariants: tuple[str, ...]
    """The invariants that may detect it first."""
    controller: str | tuple[str, ...] = ""
    """The controllers whose reconcilers are changed."""
    change: ChangePasses | None = None
    patches: tuple[AttributePatch, ...] = ()
    seeds: int = 60
    """The number of seeds within which it must be detected."""
    first: int = 0
    """The first seed to run: one that is known to detect it."""

    def wrap(self, controllers: Sequence[Controller]) -> Sequence[Controller]:
        change = self.change
        if change is None:
            return controllers
        names = (self.controller,) if isinstance(self.controller, str) else self.controller
        return [change_passes(item, change) if item.name in names else item for item in controllers]


# Ways to change a reconciler


class ChangedView:
    """A view that changes objects of some kinds."""

    def __init__(self, view: View, change: Callable[[GVR, Object], Object]) -> None:
        self._view = view
        self._change = change

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        found = self._view.find(gvr, namespace, name)
        return None if found is None else self._change(gvr, found)

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return [self._change(gvr, obj) for obj in self._view.list(gvr, namespace, labels)]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return [self._change(gvr, obj) for obj in self._view.owned(gvr, namespace, owner_uid)]


def show_changed(change: Callable[[GVR, Object], Object]) -> ChangePasses:
    def wrap(inner: ReconcileInSteps) -> ReconcileInSteps:
        return lambda view, request, now, refusals: inner(ChangedView(view, change), request, now, refusals)

    return wrap


def rewrite(change: Callable[[Write], Write | None]) -> ChangePasses:
    """Changes every write of every plan; None leaves it out."""

    def wrap(inner: ReconcileInSteps) -> ReconcileInSteps:
        def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
            plan = yield from inner(view, request, now, refusals)
            writes = tuple(new for write in plan.writes if (new := change(write)) is not None)
            status = change(plan.status) if plan.status is not None else None
            assert status is None or isinstance(status, Patch)
            return replace(plan, writes=writes, status=status)

        return reconcile

    return wrap


class _FastClock(Now):
    """A clock that is ahead."""

    def __init__(self, now: Now, seconds: float) -> None:
        super().__init__(now.wall + timedelta(seconds=seconds))
        self._now = now
        self._seconds = seconds

    def since(self, whose: str, what: str, stored: str) -> float:
        return self._now.since(whose, what, stored) + self._seconds


def hurry(seconds: float) -> ChangePasses:
    def wrap(inner: ReconcileInSteps) -> ReconcileInSteps:
        return lambda view, request, now, refusals: inner(view, request, _FastClock(now, seconds), refusals)

    return wrap


# The bugs


def name_pods_at_random() -> Callable[[Write], Write]:
    numbers = itertools.count()

    def change(write: Write) -> Write:
        if not isinstance(write, Create) or write.gvr != PODS:
            return write
        meta = write.obj["metadata"]
        name = f"{meta['name'][:50]}-{next(numbers)}"
        return Create(PODS, {**write.obj, "metadata": {**meta, "name": name}})

    return change


def _own_by_name(gvr: GVR, obj: Object) -> Object:
    """Every JobSet looks as if the TrainJob of its name owned it."""
    meta = obj["metadata"]
    if gvr != JOB_SETS:
        return obj
    owner = {
        "kind": "TrainJob",
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "name": meta["name"],
        "controller": True,
    }
    return {**obj, "metadata": {**meta, "ownerReferences": [{**owner, "uid": _Trainjobs.uid}]}}


class _Trainjobs:
    uid = ""


def _forget_ownership(inner: ReconcileInSteps) -> ReconcileInSteps:
    def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
        trainjob = view.find(TRAIN_JOBS, request.namespace, request.name)
        _Trainjobs.uid = trainjob["metadata"]["uid"] if trainjob is not None else ""
        return inner(ChangedView(view, _own_by_name), request, now, refusals)

    return reconcile


def _hide_verdict(gvr: GVR, obj: Object) -> Object:
    if gvr != TRAIN_JOBS or not (obj.get("status") or {}).get("conditions"):
        return obj
    kept = [entry for entry in obj["status"]["conditions"] if entry["type"] not in ("Complete", "Failed")]
    return {**obj, "status": {**obj["status"], "conditions": kept}}


def _hide_job_verdict(gvr: GVR, obj: Object) -> Object:
    if gvr != JOBS or not (obj.get("status") or {}).get("conditions"):
        return obj
    hidden = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
    kept = [entry for entry in obj["status"]["conditions"] if entry["type"] not in hidden]
    return {**obj, "status": {**obj["status"], "conditions": kept}}


def _count_twice(write: Write) -> Write:
    if not isinstance(write, Patch) or not (write.patch.get("status") or {}).get("failed"):
        return write
    return replace(
        write, patch={**write.patch, "status": {**write.patch["status"], "failed": 2 * write.patch["status"]["failed"]}}
    )


def _restart_for_ever(gvr: GVR, obj: Object) -> Object:
    if gvr != JOB_SETS or not (obj.get("status") or {}).get("restarts"):
        return obj
    return {**obj, "status": {**obj["status"], "restartsCountTowardsMax": 0}}


def _write_the_time(inner: ReconcileInSteps) -> ReconcileInSteps:
    def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
        plan = yield from inner(view, request, now, refusals)
        job = view.find(JOBS, request.namespace, request.name)
        if plan.all_writes or job is None or "deletionTimestamp" in job["metadata"]:
            return plan
        seen = {"metadata": {"uid": job["metadata"]["uid"], "annotations": {"seen": now.wall.isoformat()}}}
        return replace(plan, writes=(Patch(JOBS, request.namespace, request.name, seen),))

    return reconcile


def trust_the_wall_clock(inner: ReconcileInSteps) -> ReconcileInSteps:
    return lambda view, request, now, refusals: inner(view, request, Now(now.wall), refusals)


def forget_the_clock(inner: ReconcileInSteps) -> ReconcileInSteps:
    def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
        plan = yield from inner(view, request, now, refusals)
        return replace(plan, requeue_after=None)

    return reconcile


def _delete_without_uid(write: Write) -> Write:
    return replace(write, uid="", resource_version="") if isinstance(write, Delete) else write


def _skip_deletes_of_jobs(write: Write) -> Write | None:
    return None if isinstance(write, Delete) and write.gvr == JOBS else write


def _is_bound(gvr: GVR, obj: Object) -> bool:
    return gvr == PODS and bool(obj["spec"].get("nodeName"))


def _forget_requests(gvr: GVR, obj: Object) -> Object:
    """Running Pods, and templates with reservations, seem to request nothing."""
    if _is_bound(gvr, obj):
        light = [{**container, "resources": {}} for container in obj["spec"]["containers"]]
        return {**obj, "spec": {**obj["spec"], "containers": light}}
    if gvr != JOB_SETS:
        return obj
    changed = copy.deepcopy(obj)
    for replicated in changed["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            container["resources"] = {}
    return changed


def _forget_leases(gvr: GVR, obj: Object) -> Object:
    if not _is_bound(gvr, obj):
        return obj
    meta = obj["metadata"]
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key != DEVICES}
    return {**obj, "metadata": {**meta, "annotations": notes}}


def _skip_second_ranks(write: Write) -> Write | None:
    """Leaves the rank 1 of a gang without a node. Without any rank, the scheduler would only try again for ever."""
    if not isinstance(write, Patch) or "nodeName" not in write.patch.get("spec", ()):
        return write
    return None if re.search(r"-\d+-1-\w+$", write.name) else write


def _ack_at_once(original: Any) -> Any:
    async def durable(self: StoreState, revision: int) -> None:
        """Returns before the revision is durable."""

    return durable


def _lose_deletes(original: Any) -> Any:
    def take_pending(self: StoreState) -> Any:
        events = original(self)
        return [event for event in events if event.type is EventType.PUT] or events

    return take_pending


def _forget_when_busy(original: Any) -> Any:
    def add(self: Any, key: Any) -> None:
        if key not in self._busy:
            original(self, key)

    return add


def _collect_the_living(original: Any) -> Any:
    def classify(self: Any, item: Any) -> Any:
        solid, waiting, dangling = original(self, item)
        if solid and item.kind.kind == "Pod":
            return set(), waiting, dangling | solid
        return solid, waiting, dangling

    return classify


def _see_no_owners(original: Any) -> Any:
    def has_owners(self: Any, record: StoredRecord) -> Any:
        return record.bucket != "pods" and original(self, record)

    return has_owners


def _start_too_soon(original: Any) -> Any:
    async def start_pod(self: SimNode, pod: Object) -> None:
        """Starts the process without waiting for the commit."""
        meta = pod["metadata"]
        now = self._view.find(PODS, meta["namespace"], meta["name"])
        if now is not None and now["metadata"]["uid"] == meta["uid"] and "deletionTimestamp" not in now["metadata"]:
            self._report_running(self._machine.start(now))

    return start_pod


def _start_again(original: Any) -> Any:
    def run(self: SimNode, client: Any, view: Any) -> Any:
        """Ignores the process table after a restart."""
        self._machine.processes.clear()
        return original(self, client, view)

    return run


def _forget_the_version(write: Write) -> Write:
    """Writes the status without checking the resourceVersion."""
    if not isinstance(write, Patch) or write.subresource != "status":
        return write
    head = {key: value for key, value in write.patch.get("metadata", {}).items() if key != "resourceVersion"}
    return replace(write, patch={**write.patch, "metadata": head})


def _remember_old_versions(original: Any) -> Any:
    known: dict[str, facts.PodFacts] = {}

    def read(self: facts.PodFactsMemo, job_uid: str, pods: Sequence[Object]) -> Steps[list[facts.PodFacts]]:
        """Finds the facts of a large Job's Pods by their uid, whatever has changed since."""
        found = yield from original(self, job_uid, pods)
        return found if len(pods) <= facts.SMALL else [known.setdefault(one.uid, one) for one in found]

    return read


def see_no_lag(original: Any) -> Any:
    return lambda manager, controller, request: False


def _see_nothing(original: Any) -> Any:
    return lambda *arguments: None


BUGS: tuple[Planted, ...] = (
    Planted(
        "writes a JobSet's status without its version",
        ("I8",),
        "jobset",
        rewrite(_forget_the_version),
        seeds=300,
        first=1068,
    ),
    Planted(
        "makes a gang beside what still ends",
        ("I6",),
        patches=((leftovers, "find_leftover", _see_nothing),),
        seeds=500,
        first=37,
    ),
    Planted("answers before the commit", ("I1", "I15"), patches=((StoreState, "durable", _ack_at_once),)),
    Planted("loses deletions on the way to the disk", ("I2",), patches=((StoreState, "_take_pending", _lose_deletes),)),
    Planted("starts processes before the commit", ("I15",), patches=((SimNode, "_start_pod", _start_too_soon),)),
    Planted(
        "starts processes again after a restart",
        ("I5", "I8", "I9"),
        patches=((SimNode, "run", _start_again),),
        first=57,
    ),
    Planted(
        "forgets a request that comes during a pass", ("I9", "I13"), patches=((WorkQueue, "add", _forget_when_busy),)
    ),
    Planted(
        "collects Pods whose Job lives",
        ("I7",),
        patches=(
            (GarbageCollector, "_has_owners", _see_no_owners),
            (GarbageCollector, "_classify", _collect_the_living),
        ),
    ),
    Planted(
        "names Pods at random",
        ("I6",),
        "job",
        rewrite(name_pods_at_random()),
        # The manager waits until its view shows its own writes, which usually hides this bug, so disable that too.
        ((Manager, "_is_behind", see_no_lag),),
        seeds=200,
    ),
    Planted("owns by name", ("I7", "I9"), "trainjob", _forget_ownership, seeds=200, first=56),
    Planted("makes a JobSet after the end", ("I8",), "trainjob", show_changed(_hide_verdict), seeds=200),
    Planted("forgets the verdict of a Job", ("I8", "I9", "I14"), "job", show_changed(_hide_job_verdict)),
    Planted(
        "remembers old versions of Pods",
        ("I8", "I9"),
        patches=((facts.PodFactsMemo, "read", _remember_old_versions),),
    ),
    Planted("counts failed Pods twice", ("I8",), "job", rewrite(_count_twice)),
    Planted("restarts more often than allowed", ("I8",), "jobset", show_changed(_restart_for_ever)),
    Planted("writes in every pass", ("I9",), "job", _write_the_time),
    Planted("acts five seconds early", ("I13",), "jobset", hurry(5.0), seeds=120),
    Planted("expires by the wall clock", ("I13",), "jobset", trust_the_wall_clock, seeds=400, first=84),
    Planted("takes deadlines by the wall clock", ("I13",), "trainjob", trust_the_wall_clock, seeds=400, first=77),
    Planted("forgets to look again", ("I9", "I13"), "jobset", forget_the_clock, seeds=120),
    Planted("deletes whatever has the name", ("I7",), "jobset", rewrite(_delete_without_uid)),
    Planted("counts nothing that runs", ("I17",), "scheduler", show_changed(_forget_requests), seeds=200, first=180),
    Planted("leases GPUs that are leased", ("I17",), "scheduler", show_changed(_forget_leases), seeds=150, first=57),
    Planted("binds a part of a gang", ("I17", "I9"), "scheduler", rewrite(_skip_second_ranks)),
    Planted("leaves old Jobs running", ("I8", "I9", "I6"), "jobset", rewrite(_skip_deletes_of_jobs)),
)
