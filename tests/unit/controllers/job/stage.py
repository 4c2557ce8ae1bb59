"""A Job on a stage: a world in which deleted Pods first terminate, and short words for what happens to Pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from tests.unit.controllers.world import NOW, World, make_job
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.writes import Delete, Write
from trainmaster.controllers.job.reconciler import CONTROLLER
from trainmaster.engine.plan import Note, Plan
from trainmaster.engine.request import Request
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

NAME = "j"


class Stage(World):
    def __init__(self, **spec: Any) -> None:
        super().__init__()
        spec.setdefault("backoffLimit", 6)
        self.seconds = 0.0
        self.plans: list[Plan] = []
        self.add(JOBS, make_job(name=NAME, **spec))
        self.settle()

    @property
    def job(self) -> Object:
        return self.get(JOBS, NAME)

    @property
    def status(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.job.get("status") or {}
        return status

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        return [(entry["type"], entry["status"], entry["reason"]) for entry in self.status.get("conditions", [])]

    @property
    def notes(self) -> list[Note]:
        return [note for plan in self.plans for note in plan.notes]

    @property
    def reasons(self) -> list[str]:
        return [note.reason for note in self.notes]

    def look(self) -> Plan:
        """One pass, carried out."""
        now = NOW + timedelta(seconds=self.seconds)
        plan = CONTROLLER.reconcile(self, Request("default", NAME), Now(now), ())
        self.carry_out(plan.all_writes)
        self.plans.append(plan)
        return plan

    def settle(self) -> Plan:
        """Passes until one writes nothing; time stands still."""
        for _ in range(20):
            plan = self.look()
            if not plan.all_writes:
                return plan
        raise AssertionError("does not come to rest")

    def wait(self, seconds: float) -> Plan:
        self.seconds += seconds
        return self.settle()

    def carry_out(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, Delete) and write.gvr == PODS:
                self.delete(self.get(PODS, write.name))
            else:
                super().carry_out([write])

    def edit(self, **spec: Any) -> None:
        self.merge(JOBS, NAME, {"spec": spec})

    # Pods.

    @property
    def pods(self) -> list[Object]:
        return list(self.list(PODS))

    @property
    def active(self) -> list[Object]:
        over = ("Succeeded", "Failed")
        return [
            pod
            for pod in self.pods
            if "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in over
        ]

    @property
    def active_indexes(self) -> list[int | None]:
        return sorted((Pod(pod).index for pod in self.active), key=str)

    def find_pod(self, index: int) -> Object:
        """The active Pod of the index, else of that position."""
        active = self.active
        return next((pod for pod in active if Pod(pod).index == index), None) or active[index]

    def end(self, index: int, code: int = 0, conditions: Sequence[Mapping[str, Any]] = ()) -> Object:
        return self.end_pod(self.find_pod(index), code, conditions)

    def end_pod(self, pod: Object, code: int = 0, conditions: Sequence[Mapping[str, Any]] = ()) -> Object:
        moment = format_time(NOW + timedelta(seconds=self.seconds))
        container = {"name": "node", "state": {"terminated": {"exitCode": code, "finishedAt": moment}}}
        phase = "Failed" if code else "Succeeded"
        status = {"phase": phase, "conditions": list(conditions), "containerStatuses": [container]}
        return self.merge(PODS, pod["metadata"]["name"], {"status": status})

    def start_pods(self) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": format_time(NOW)}
        for pod in self.active:
            status = {"phase": "Running", "conditions": [ready]}
            self.merge(PODS, pod["metadata"]["name"], {"spec": {"nodeName": "local"}, "status": status})

    def delete(self, pod: Object) -> None:
        """As a client does: the Pod terminates."""
        moment = format_time(NOW + timedelta(seconds=self.seconds))
        self.merge(PODS, pod["metadata"]["name"], {"metadata": {"deletionTimestamp": moment}})

    def vanish(self, *pods: Object) -> None:
        for pod in pods:
            del self.objects[PODS, "default", pod["metadata"]["name"]]

    def let_terminating_go(self) -> None:
        self.vanish(*(pod for pod in self.pods if "deletionTimestamp" in pod["metadata"]))


def list_kinds(stage: Stage) -> list[str]:
    return [kind for kind, status, _ in stage.conditions if status == "True"]
