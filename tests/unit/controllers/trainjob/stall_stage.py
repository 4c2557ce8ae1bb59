"""A TrainJob that runs and reports, in virtual time: the real reconciler and the real measurement of its pace."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tests.unit.controllers.world import NOW, World, make_runtime, make_trainjob
from trainmaster.api.labels import ON_STALL, REPLICATED_JOB_NAME
from trainmaster.api.lifecycle.stalls import JobSign, StallRules
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.training import reports
from trainmaster.api.training.pace import PaceMeter
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.engine.plan import Note
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Timeline
from trainmaster.testing.virtual import VirtualClock

NAME = "a"


class ClockedWorld(World):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def add(self, gvr: GVR, obj: Mapping[str, Any]) -> Object:
        new = deepcopy(dict(obj))
        new["metadata"].setdefault("creationTimestamp", format_time(self._clock.now()))
        return super().add(gvr, new)


class StallStage:
    def __init__(
        self, *, policy: str = "", max_restarts: int = 2, signs: bool = False, on_cluster: bool = False
    ) -> None:
        self.clock = VirtualClock(NOW)
        self.world = ClockedWorld(self.clock)
        self.sign: JobSign | None = None
        self.notes: list[Note] = []
        self._on_cluster = on_cluster
        self._signs = signs
        self.start_server()
        self.world.add(CLUSTER_TRAINING_RUNTIMES, make_runtime(jobset={"failurePolicy": {"maxRestarts": max_restarts}}))
        trainjob = make_trainjob(name=NAME)
        if policy:
            trainjob["metadata"]["annotations"] = {ON_STALL: policy}
        self.world.add(TRAIN_JOBS, trainjob)
        self.play()
        self.start_pods()

    def start_server(self) -> None:
        """Also in place of one that has ended: nothing that was in memory is left."""
        began = self.clock.boot()
        rules = StallRules(
            find_sign=lambda uid: self.sign,
            sees_use=self._signs,
            count_watched=lambda: self.clock.boot() - began,
        )
        self._controller = build_controller(FrameworkContext(stalls=rules, on_cluster=self._on_cluster))
        self._timeline: Timeline[str] = Timeline(self.clock)
        self._meter = PaceMeter(self.clock)
        self._due: float | None = None

    # Time

    def go(self, seconds: float) -> None:
        """Time passes, and the controller wakes when it asked for that."""
        end = self.clock.boot() + seconds
        while self._due is not None and self._due <= end:
            self.clock.advance(self._due - self.clock.boot())
            self._due = None
            self.play()
        self.clock.advance(end - self.clock.boot())

    def play(self) -> None:
        """Passes until nothing is left to do."""
        for _ in range(12):
            now = self._timeline.begin_pass(NAME)
            plan = self._controller.reconcile(self.world, Request("default", NAME), now, ())
            self._timeline.end_pass(NAME, now)
            self.world.carry_out(plan.all_writes)
            self.notes += plan.notes
            if plan.requeue_after is not None:
                due = self.clock.boot() + plan.requeue_after
                self._due = due if self._due is None else min(self._due, due)
            if not plan.all_writes:
                return
        raise AssertionError("the controller does not come to rest")

    # What the node and the program do

    def start_pods(self) -> None:
        """In place of those of an earlier attempt."""
        for gvr, name in ((JOBS, f"{NAME}-node-0"), (PODS, f"{NAME}-node-0-0")):
            self.world.objects.pop((gvr, "default", name), None)
        jobset = self.world.get(JOB_SETS, NAME)
        labels = {REPLICATED_JOB_NAME: "node"}
        owner = [{"kind": "JobSet", "name": NAME, "uid": jobset["metadata"]["uid"], "controller": True}]
        meta = {"name": f"{NAME}-node-0", "namespace": "default", "labels": labels, "ownerReferences": owner}
        job = self.world.add(JOBS, {"kind": "Job", "metadata": meta, "spec": {}, "status": {}})
        owner = [{"kind": "Job", "name": f"{NAME}-node-0", "uid": job["metadata"]["uid"], "controller": True}]
        meta = {"name": f"{NAME}-node-0-0", "namespace": "default", "labels": labels, "ownerReferences": owner}
        self.world.add(PODS, {"kind": "Pod", "metadata": meta, "spec": {}})
        self.start_container()
        counts = {"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}
        self.world.merge(JOB_SETS, NAME, {"status": {"replicatedJobsStatus": [counts]}})
        self.play()

    def start_container(self) -> None:
        """Also again, in its Pod."""
        running = {"running": {"startedAt": format_time(self.clock.now())}}
        status = {"phase": "Running", "containerStatuses": [{"name": "node", "state": running}]}
        self.world.merge(PODS, f"{NAME}-node-0-0", {"status": status})

    def report(self, step: float | None = None, *, after: float = 0.0, total: float = 0, phase: str = "") -> None:
        self.go(after)
        values = {reports.STEP: step, reports.TOTAL: total or None, "phase": phase or None}
        metrics = [{"name": name, "value": str(value)} for name, value in values.items() if value is not None]
        report: Object = {"metrics": metrics, "lastUpdatedTime": format_time(self.clock.now())}
        pod, jobset = self.world.get(PODS, f"{NAME}-node-0-0"), self.world.get(JOB_SETS, NAME)
        reporter = reports.read_reporter(pod, self.world.get(JOBS, f"{NAME}-node-0"))
        began = reports.find_beginning(jobset, reporter)
        wanted = reports.decide(report, self.trainjob, self.clock.now(), began)
        assert wanted is not None
        pace = self._meter.measure(self.trainjob, wanted, reports.find_program_start(began, reporter))
        self.world.merge(TRAIN_JOBS, NAME, reports.build_patch(wanted, pace))
        self.play()

    def train(self, steps: int, *, every: float = 5.0, first: int = 1) -> None:
        for step in range(first, first + steps):
            self.report(step, after=every)

    def suspend(self, wanted: bool) -> None:
        self.world.merge(TRAIN_JOBS, NAME, {"spec": {"suspend": wanted}})
        if wanted:
            del self.world.objects[PODS, "default", f"{NAME}-node-0-0"]
        self.play()

    # What is stored

    @property
    def trainjob(self) -> Object:
        return self.world.get(TRAIN_JOBS, NAME)

    def find_stalled(self) -> Object | None:
        found: Object | None = (self.trainjob.get("status") or {}).get("stalled")
        return found

    def get_stalled(self) -> Object:
        found = self.find_stalled()
        assert found is not None, "it does not stall"
        return found

    @property
    def events(self) -> list[str]:
        return [note.reason for note in self.notes if note.reason in ("Stalled", "Advancing")]

    def find_condition(self, kind: str) -> Object | None:
        entries = (self.trainjob.get("status") or {}).get("conditions") or ()
        return next((entry for entry in entries if entry["type"] == kind and entry["status"] == "True"), None)

    @property
    def has_jobset(self) -> bool:
        return self.world.find(JOB_SETS, "default", NAME) is not None
