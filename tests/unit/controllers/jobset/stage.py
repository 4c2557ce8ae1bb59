"""A JobSet on a stage: no Job controller, no collector; tests play their parts, as upstream's integration tests do.

    stage = Stage(make_jobset(...))
    stage.end("js-a-0", "Failed", reason="BackoffLimitExceeded")
    stage.run()

`run` makes passes until one writes nothing. With `linger`, deleted Jobs stay (as with Foreground deletion) until
`vanish`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import orjson

from tests.unit.controllers.world import NOW, World
from trainmaster.api.labels import RESTART_ATTEMPT, WAITING
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS
from trainmaster.client.writes import Delete, Write
from trainmaster.controllers.jobset.reconciler import CONTROLLER
from trainmaster.engine.plan import Plan
from trainmaster.kit.clock import format_time


def make_replicated(name: str, replicas: int = 1, pods: int = 1, **more: Any) -> Object:
    pod = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}
    job = {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": pod}
    return {"name": name, "groupName": "default", "replicas": replicas, "template": {"spec": job}, **more}


def make_jobset(
    *replicated: Object, name: str = "js", annotations: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    meta = {"name": name, "namespace": "default", **({"annotations": dict(annotations)} if annotations else {})}
    jobs = list(replicated) or [make_replicated("a"), make_replicated("b", 2)]
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**kind, "metadata": meta, "spec": {"replicatedJobs": jobs, **spec}}


class Stage(World):
    def __init__(self, jobset: Object | None = None, *, linger: bool = False) -> None:
        super().__init__()
        self.linger = linger
        self.now = NOW
        self.notes: list[tuple[str, str, str]] = []
        self.add(JOB_SETS, jobset or make_jobset())
        self.play()

    def carry_out(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if self.linger and isinstance(write, Delete):
                self.merge(write.gvr, write.name, {"metadata": {"deletionTimestamp": format_time(self.now)}})
            else:
                super().carry_out([write])

    def play(self) -> Plan:
        """Passes until one writes nothing; returns that last one."""
        for _ in range(30):
            plan = self.step()
            if not plan.all_writes:
                return plan
        raise AssertionError("does not come to rest")

    def step(self) -> Plan:
        plan = self.run(CONTROLLER, "js", self.now)
        self.notes += [("Warning" if note.warning else "Normal", note.reason, note.message) for note in plan.notes]
        return plan

    @property
    def waiting(self) -> Any:
        """Why the JobSet waits."""
        return orjson.loads(self.jobset["metadata"]["annotations"][WAITING])

    def vanish(self) -> None:
        for job in self.list(JOBS):
            if "deletionTimestamp" in job["metadata"]:
                del self.objects[JOBS, "default", job["metadata"]["name"]]

    def wait(self, seconds: float) -> Plan:
        self.now += timedelta(seconds=seconds)
        return self.play()

    def end(self, *names: str, kind: str = "Complete", reason: str = "", message: str = "", ago: float = 0) -> None:
        for name in names:
            moment = format_time(self.now - timedelta(seconds=ago))
            condition = {"type": kind, "status": "True", "reason": reason, "message": message}
            status = {"conditions": [{**condition, "lastTransitionTime": moment}], "active": None, "ready": None}
            self.merge(JOBS, name, {"status": status})

    def fail(self, *names: str, reason: str = "BackoffLimitExceeded", message: str = "", ago: float = 0) -> None:
        self.end(*names, kind="Failed", reason=reason, message=message, ago=ago)

    def get_ready(self, *names: str) -> None:
        for name in names:
            job = self.get(JOBS, name)
            count = job["spec"]["parallelism"]
            self.merge(JOBS, name, {"status": {"active": count, "ready": count, "startTime": format_time(self.now)}})

    def edit(self, **spec: Any) -> None:
        self.merge(JOB_SETS, "js", {"spec": spec})

    @property
    def jobset(self) -> Object:
        return self.get(JOB_SETS, "js")

    @property
    def status(self) -> Object:
        status: Object = self.jobset.get("status") or {}
        return status

    @property
    def names(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.list(JOBS)]

    @property
    def suspended(self) -> dict[str, bool]:
        return {job["metadata"]["name"]: job["spec"]["suspend"] for job in self.list(JOBS)}

    @property
    def attempts(self) -> dict[str, str]:
        return {job["metadata"]["name"]: job["metadata"]["labels"][RESTART_ATTEMPT] for job in self.list(JOBS)}

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {entry["type"]: (entry["status"], entry["reason"]) for entry in self.status.get("conditions", ())}

    @property
    def is_active(self) -> bool:
        true = {kind for kind, (status, _) in self.conditions.items() if status == "True"}
        return not true & {"Completed", "Failed", "Suspended"}

    def count(self, name: str) -> dict[str, Any]:
        """The counters of a ReplicatedJob that are not zero."""
        entry = next(one for one in self.status["replicatedJobsStatus"] if one["name"] == name)
        return {key: value for key, value in entry.items() if key != "name" and value}
