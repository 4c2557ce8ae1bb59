"""Properties that every reconciler must satisfy, written once and run for all of them.

The driver works without queues or tasks: it calls every reconciler for every object, again and again, until nothing
changes and no time has to pass. Plans are applied write by write through the ordinary client, so that faults have
somewhere to strike (in one transaction they would be empty properties):

    crash    the plan ends after its n-th write, as if the process had died; then everything goes on from the store
    stale    reconcilers read a view that is some rounds old
    order    reconcilers and objects are visited in another order, and some visits are left out

Whatever strikes, the end must be the same as without, and at the end one more pass must write nothing. `Coverage`
counts how often each (write site, fault) was hit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.flow.plant import CONTROLLERS
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    TRAIN_JOBS,
)
from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client, DeleteOptions, PatchType
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Delete, Patch, Write, apply_in_order
from trainmaster.controllers.install import install_runtimes
from trainmaster.engine.apply import is_passing
from trainmaster.engine.controller import Controller
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.cluster import Cluster, prepare_store, running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

KINDS = (TRAIN_JOBS, JOB_SETS, JOBS, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, CONFIG_MAPS, SECRETS, NODES)
Script = Callable[[Object], int | None]
"""The exit code of a Pod that runs; None: it runs until it is deleted."""


@dataclass
class Coverage:
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, controller: str, write: Write, fault: str) -> None:
        self.hits[get_site(controller, write), fault] += 1

    def get_sites(self, fault: str) -> set[str]:
        return {site for site, other in self.hits if other == fault}

    def render(self) -> str:
        return "\n".join(f"{count:6} {fault:8} {site}" for (site, fault), count in sorted(self.hits.items()))


def get_site(controller: str, write: Write) -> str:
    verb = type(write).__name__.lower()
    part = f"/{write.subresource}" if isinstance(write, Patch) and write.subresource else ""
    return f"{controller}: {verb} {write.gvr.plural}{part}"


@dataclass
class Faults:
    crash_after: int = 0
    """The plan that holds the n-th write of the run ends after it; 0: never."""
    lag: int = 0
    """How many rounds the view is old."""
    seed: int = 0
    """Other than 0: visits in an order of that seed, a third of them left out."""


class Snapshot:
    """A view of the past."""

    def __init__(self, objects: Mapping[GVR, Sequence[Object]]) -> None:
        self._objects = objects

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        for obj in self._objects.get(gvr, ()):
            if obj["metadata"]["name"] == name and obj["metadata"].get("namespace", "") == namespace:
                return obj
        return None

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        found = self._objects.get(gvr, ())
        return [obj for obj in found if namespace in ("", obj["metadata"].get("namespace", ""))]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        found = self.list(gvr, namespace)
        return [obj for obj in found if any(o["uid"] == owner_uid for o in obj["metadata"].get("ownerReferences", ()))]


class Driver:
    def __init__(
        self, cluster: Cluster, clock: VirtualClock, script: Script, faults: Faults, coverage: Coverage
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.faults = faults
        self.coverage = coverage
        self.written = 0
        self.ran = 0
        self._script = script
        self._past: list[Snapshot] = []
        self._random = random.Random(faults.seed)

    async def run(self, changes: Sequence[Callable[[Driver], Any]]) -> None:
        """Applies each change of the scenario and lets everything come to rest before the next one."""
        faults = self.faults
        for change in changes:
            # Coming to rest ends a disturbance; the next change is disturbed again.
            self.faults = faults
            await change(self)
            await self.settle()

    async def settle(self) -> None:
        quiet = 0
        for _ in range(400):
            before = self.cluster.store.revision
            wake = await self._visit_all()
            await self.cluster.settle()
            await self._run_node()
            await self.cluster.settle()
            quiet = quiet + 1 if self.cluster.store.revision == before else 0
            # A view of the past shows the last change only after as many rounds.
            if quiet == 0 or quiet <= self.faults.lag:
                continue
            if self._is_disturbed():
                # A lagging view or a left-out visit may hide work: look once more with clear eyes.
                self._past.clear()
                self.faults = Faults(crash_after=self.faults.crash_after)
                continue
            if wake is None:
                return
            self.clock.advance(wake)
        raise AssertionError("does not come to rest")

    def _is_disturbed(self) -> bool:
        return bool(self.faults.lag or self.faults.seed)

    def _get_view(self) -> View:
        if not self.faults.lag:
            return self.cluster.view
        self._past.append(Snapshot({gvr: list(self.cluster.view.list(gvr)) for gvr in [*KINDS, *RUNTIMES]}))
        return self._past[max(0, len(self._past) - 1 - self.faults.lag)]

    async def _visit_all(self) -> float | None:
        view = self._get_view()
        visits = [(controller, obj) for controller in CONTROLLERS for obj in view.list(controller.kind)]
        if self.faults.seed:
            self._random.shuffle(visits)
            visits = [visit for visit in visits if self._random.random() > 1 / 3]
        wakes = [await self._visit(controller, view, obj) for controller, obj in visits]
        return min((wake for wake in wakes if wake is not None), default=None)

    async def _visit(self, controller: Controller, view: View, obj: Object) -> float | None:
        request = Request(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        plan = controller.reconcile(view, request, Now(self.clock.now()), ())
        self.check_deletion(view, plan.all_writes)
        for write in plan.all_writes:
            applied = await apply_in_order(self.cluster.client, [write], field_manager=controller.name)
            if applied.refusal is not None:
                assert is_passing(applied.refusal), f"{get_site(controller.name, write)}: {applied.refusal.error}"
                self.coverage.add(controller.name, write, "refused")
                return None
            self.written += 1
            self.coverage.add(controller.name, write, "lag" if self.faults.lag else "none")
            if self.written == self.faults.crash_after:
                self.coverage.add(controller.name, write, "crash")
                return None
        return plan.requeue_after

    def check_deletion(self, view: View, writes: Sequence[Write]) -> None:
        """Nothing is made for an owner that is going, and nothing that is going is changed."""
        for write in writes:
            if isinstance(write, Create):
                for owner in write.obj["metadata"].get("ownerReferences", ()):
                    holders = [obj for gvr in KINDS for obj in view.list(gvr) if obj["metadata"]["uid"] == owner["uid"]]
                    assert not any("deletionTimestamp" in obj["metadata"] for obj in holders), write
            elif isinstance(write, Patch):
                found = view.find(write.gvr, write.namespace, write.name)
                assert found is None or "deletionTimestamp" not in found["metadata"], write
            elif isinstance(write, Delete):
                assert write.uid, "a delete without a uid could hit a successor"

    async def _run_node(self) -> None:
        """Each Pod takes one step: bound -> Running -> ended; deleted -> gone."""
        client = self.cluster.client
        for pod in list(self.cluster.view.list(PODS)):
            meta = pod["metadata"]
            if pod["spec"].get("nodeName") != "local":
                continue
            if meta.get("deletionTimestamp"):
                try:
                    options = DeleteOptions(grace_seconds=0, uid=meta["uid"])
                    await client.delete(PODS, meta["name"], meta["namespace"], options)
                except NotFound:
                    pass
                continue
            status = self._advance(pod)
            if status is not None:
                self.ran += status["phase"] == "Running"
                patch = {"status": status}
                await client.patch(PODS, meta["name"], PatchType.MERGE, patch, meta["namespace"], subresource="status")

    def _advance(self, pod: Object) -> Object | None:
        phase = pod.get("status", {}).get("phase", "Pending")
        if phase == "Pending":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": format_time(self.clock.now())}
            return {"phase": "Running", "conditions": [ready]}
        code = self._script(pod)
        if phase != "Running" or code is None:
            return None
        ended = {"exitCode": code, "finishedAt": format_time(self.clock.now())}
        head = {"name": "node", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        status = {**head, "state": {"terminated": ended}}
        return {"phase": "Succeeded" if code == 0 else "Failed", "conditions": [], "containerStatuses": [status]}


RUNTIMES = (GVR("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes"),)


@dataclass(frozen=True)
class Scenario:
    name: str
    changes: Sequence[Callable[[Driver], Any]]
    script: Script = lambda pod: 0
    free: tuple[GVR, ...] = ()
    """Kinds whose end may depend on how fast the world is: whether rank 1 was made before rank 0 failed."""


@dataclass
class Outcome:
    state: Any
    written: int
    second_pass: list[str]
    ran: int
    """How many Pods ran, from first to last."""


@cache
def prepare_play() -> MemoryStore:
    async def fill(client: Client) -> None:
        await install_runtimes(client)
        # Two restarts show all there is to see; six only take longer.
        fewer = {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 2}}}}}
        await client.patch(RUNTIMES[0], "torch-distributed", PatchType.MERGE, fewer)
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}})

    return prepare_store(fill)


def play(scenario: Scenario, faults: Faults, coverage: Coverage) -> Outcome:
    async def main() -> Outcome:
        clock = VirtualClock()
        async with running_cluster(store=prepare_play().copy(), clock=clock) as cluster:
            driver = Driver(cluster, clock, scenario.script, faults, coverage)
            await driver.run(scenario.changes)
            state = normalise(cluster.view, scenario.free)
            return Outcome(state, driver.written, list_writes(cluster.view, clock), driver.ran)

    return run_virtual(main())


def list_writes(view: View, clock: VirtualClock) -> list[str]:
    """What one more pass over everything would write."""
    sites: list[str] = []
    for controller in CONTROLLERS:
        for obj in view.list(controller.kind):
            request = Request(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            plan = controller.reconcile(view, request, Now(clock.now()), ())
            sites.extend(get_site(controller.name, write) for write in plan.all_writes)
    return sites


_MASKED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_TIMES = ("lastTransitionTime", "lastProbeTime", "startTime", "completionTime", "finishedAt", "startedAt", "since")


def normalise(view: View, free: Sequence[GVR] = ()) -> dict[str, list[Any]]:
    """The end state without what may differ: identities, times, derived name parts."""
    names: dict[str, str] = {}
    for gvr in KINDS:
        for obj in view.list(gvr):
            names[obj["metadata"]["uid"]] = f"<{gvr.plural}>"
            if gvr == PODS and "generateName" in obj["metadata"]:
                names[obj["metadata"]["name"]] = obj["metadata"]["generateName"] + "?????"
    kinds = [gvr for gvr in KINDS if gvr not in free]
    return {gvr.plural: sorted((_mask(obj, names) for obj in view.list(gvr)), key=str) for gvr in kinds}


def _mask(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in _MASKED}
        if value.get("kind") == "Pod" or "generateName" in kept:
            kept.pop("name", None)
        if isinstance(kept.get("data"), dict):
            kept.pop("data")
        return {key: "<time>" if key in _TIMES and item else _mask(item, names) for key, item in kept.items()}
    if isinstance(value, list):
        return [_mask(item, names) for item in value]
    if isinstance(value, str):
        for name, mask in names.items():
            value = value.replace(name, mask)
    return value
