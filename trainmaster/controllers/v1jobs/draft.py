"""The status of a v1 job while a pass computes it, with upstream's rules for its conditions.

Conditions are an ordered list: a change moves a condition to the end, because `kubectl get` shows the last one.
Running and Restarting replace each other. A final condition sets them to False in place, keeping their texts.
"""

from __future__ import annotations

from trainmaster.api.conditions import build_condition
from trainmaster.api.meta import Fields
from trainmaster.engine.draft import ObjectDraft
from trainmaster.jobs.models.training import FAILED, SUSPENDED
from trainmaster.jobs.models.v1jobs import CREATED, RESTARTING, RUNNING, SUCCEEDED, V1Job
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

_REPLACES = {RUNNING: RESTARTING, RESTARTING: RUNNING}
_FINAL = (SUCCEEDED, FAILED)


class V1JobDraft(ObjectDraft):
    __slots__ = ("_job", "_time")

    def __init__(self, job: V1Job, now: Now) -> None:
        super().__init__(job.gvr, job)
        self._job = job
        self._time = now.wall

    @property
    def is_finished(self) -> bool:
        return any(self.is_true(kind) for kind in _FINAL)

    def set(self, kind: str, message: str, *, status: bool = True, reason: str = "") -> None:
        """`reason`: the name of the condition if not given; the kind of the job is put in front."""
        if self.is_finished:
            return
        reason = self._job.framework.kind + (reason or kind)
        new = build_condition(kind, status, reason, message, self._time)
        new["lastUpdateTime"] = new["lastTransitionTime"]
        kept: list[Fields] = []
        for old in self._conditions:
            if old["type"] == kind:
                if (old["status"], old.get("reason")) == (new["status"], reason):
                    return
                if old["status"] == new["status"]:
                    new["lastTransitionTime"] = old.get("lastTransitionTime", new["lastTransitionTime"])
            elif kind in _FINAL and old["type"] in _REPLACES:
                kept.append({**old, "status": "False"})
            elif _REPLACES.get(kind) != old["type"]:
                kept.append(old)
        self._replace([*kept, new])

    def _replace(self, conditions: list[Fields]) -> None:
        self.status["conditions"] = self._conditions = conditions

    def begin(self) -> None:
        """Before anything else."""
        job = self._job
        self.set(CREATED, f"{job.framework.kind} {job.name} is created.")

    def finish(self, kind: str, message: str, *, reason: str = "", warning: bool = False) -> None:
        job = self._job
        self.set(kind, message, reason=reason)
        self.status.setdefault("completionTime", format_time(self._time))
        self.status.pop("waiting", None)
        self.note(job, f"{job.framework.kind}{kind}", message, warning=warning)

    def suspend(self) -> None:
        job = self._job
        text = f"{job.framework.kind} {job.name} is suspended."
        if self.is_true(SUSPENDED):
            return
        if self.is_true(RUNNING):
            self.set(RUNNING, text, status=False, reason=SUSPENDED)
        self.set(SUSPENDED, text)
        self.note(job, f"{job.framework.kind}{SUSPENDED}", text)

    def resume(self) -> None:
        job = self._job
        if not self.is_true(SUSPENDED):
            return
        text = f"{job.framework.kind} {job.name} is resumed."
        self.set(SUSPENDED, text, status=False, reason="Resumed")
        self.note(job, f"{job.framework.kind}Resumed", text)
        self.status["startTime"] = format_time(self._time)

    def start(self) -> None:
        self.status.setdefault("startTime", format_time(self._time))
