"""One v1 job in a world of plain objects, whose Pods tests set by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.unit.controllers.world import NOW, World
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, SERVICES
from trainmaster.api.v1jobs.frameworks import V1Framework
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.controllers.v1jobs.reconciler import build_controller
from trainmaster.engine.plan import Plan
from trainmaster.jobs.models.v1jobs import MODELS

_BY_KIND = {model.gvr: model for model in MODELS}


def make_v1_job(framework: V1Framework, replicas: dict[str, int], restart: str = "OnFailure", **spec: Any) -> Object:
    container = {"name": framework.container, "image": "train:1"}
    entry = {"restartPolicy": restart, "template": {"spec": {"containers": [container]}}}
    types = {name: {**entry, "replicas": count} for name, count in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.kind,
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {framework.replicas_field: types, **spec},
    }


class V1Stage:
    def __init__(
        self,
        framework: V1Framework,
        replicas: dict[str, int],
        restart: str = "OnFailure",
        cluster: V1Cluster | None = None,
        **spec: Any,
    ):
        self.world = World()
        self.controller = build_controller(_BY_KIND[framework.gvr], cluster)
        self.framework = framework
        self.now: datetime = NOW
        self.notes: list[str] = []
        self.world.add(framework.gvr, make_v1_job(framework, replicas, restart, **spec))

    @property
    def job(self) -> Object:
        return self.world.get(self.framework.gvr, "a")

    @property
    def status(self) -> Object:
        found: Object = self.job.get("status") or {}
        return found

    @property
    def conditions(self) -> list[tuple[str, str]]:
        return [(entry["type"], entry["status"]) for entry in self.status.get("conditions") or ()]

    @property
    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.world.list(PODS)]

    @property
    def services(self) -> list[str]:
        return [service["metadata"]["name"] for service in self.world.list(SERVICES)]

    def get_pod(self, name: str) -> Object:
        return self.world.get(PODS, name)

    def change(self, **spec: Any) -> None:
        self.world.merge(self.framework.gvr, "a", {"spec": spec})

    def step(self) -> Plan:
        plan = self.world.run(self.controller, "a", self.now)
        self.notes += [f"{note.reason}: {note.message}" for note in plan.notes]
        return plan

    def play(self) -> None:
        """Passes until nothing is left to do without time going by."""
        for _ in range(12):
            if not self.step().all_writes:
                return
        raise AssertionError("the controller does not come to rest")

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.play()

    def set_phase(self, name: str, phase: str, code: int | None = None, restarts: int = 0) -> None:
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        container = {"name": self.framework.container, "restartCount": restarts, "state": state}
        self.world.merge(PODS, name, {"status": {"phase": phase, "containerStatuses": [container]}})

    def start(self) -> None:
        """Creates everything and lets all Pods run."""
        self.play()
        for name in self.pods:
            self.set_phase(name, "Running")
        self.play()


def read_variables(pod: Object, container: int = 0) -> dict[str, str | None]:
    entries = pod["spec"]["containers"][container].get("env") or ()
    return {entry["name"]: entry.get("value") for entry in entries}
