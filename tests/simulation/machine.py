"""Simulated processes of Pods, which outlive the control plane, and their outcomes.

The outcome of a Pod is drawn from the seed and its identity (job, attempt, index, number of earlier Pods), not from its
start time, so that faults change only the timing of a run. Checks of processes (I5, I6, I15) are made here, when a
process starts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.disk import Disk
from tests.simulation.loop import SimLoop
from tests.simulation.trace import Trace
from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.frameworks import JOB_NAME, MPI, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE, WORKER

HANGS = -1
"""Exit code of a process that ends only when it is killed."""
KILLED = 137
_REPORTING_RATIO = 4
"""In one of so many worlds programs report progress. Not in all, because it costs writes."""


@dataclass(slots=True)
class Process:
    uid: str
    pod: str
    """namespace/name"""
    job: str
    """The uid of the Job that the Pod belongs to."""
    rank: tuple[str, str]
    """(name of the Job, index in it)"""
    gang: str
    """The uid of the JobSet or v1 job that the Pod belongs to."""
    attempt: int
    exit_code: int
    """The exit code it will have."""
    container: str
    """The name of the Pod's first container."""
    ended: bool = False
    vanished: bool = False
    """It disappeared, and its exit code is unknown."""
    restarts: int = 0
    """How often its container was restarted in its Pod."""


class Machine:
    def __init__(self, loop: SimLoop, trace: Trace, disk: Disk, seed: int, trouble: float) -> None:
        self._loop = loop
        self._trace = trace
        self._disk = disk
        self._seed = seed
        self._trouble = trouble
        """Probability that an attempt of a job has a problem."""
        self.has_reports = seed % _REPORTING_RATIO == _REPORTING_RATIO - 1
        """Whether programs report progress."""
        self.processes: dict[str, Process] = {}
        self.on_end: Callable[[Process], None] | None = None
        """Set by the current node agent; without one, exit codes are kept until requested."""

    def start(self, pod: Object) -> Process:
        meta = pod["metadata"]
        marks = meta.get("labels") or {}
        known = self.processes.get(meta["uid"])
        if known is not None:
            self._trace.violate("I5", f"a second process for Pod {meta['name']} uid {meta['uid'][:8]}")
            return known
        code, seconds, vanishes = self._draw_v1_fate(pod) if OPERATOR_NAME in marks else self._draw_fate(pod)
        gang = read_gang_uid(pod) or meta["uid"]
        index = (meta.get("annotations") or {}).get(labels.COMPLETION_INDEX, "")
        process = Process(
            meta["uid"],
            f"{meta['namespace']}/{meta['name']}",
            marks.get(labels.CONTROLLER_UID, meta["uid"]),
            read_v1_rank(pod) or (marks.get(labels.JOB_NAME, ""), index),
            gang,
            int(marks.get(labels.RESTART_ATTEMPT, "0")),
            code,
            pod["spec"]["containers"][0]["name"],
            vanished=vanishes,
        )
        self._check_start(process)
        self.processes[process.uid] = process
        self._trace.note("machine", f"starts {process.pod}, attempt {process.attempt}, will exit {code}")
        if code != HANGS:
            self._loop.call_later(seconds, self._end, process, 0)
        return process

    def restart(self, process: Process, pod: Object) -> None:
        """Starts the program of a v1 job again in the same Pod (`restartPolicy: OnFailure`)."""
        process.restarts += 1
        process.ended = False
        process.exit_code, seconds, process.vanished = self._draw_v1_fate(pod, process.restarts)
        self._trace.note("machine", f"starts {process.pod} again ({process.restarts}), exits {process.exit_code}")
        if process.exit_code != HANGS:
            self._loop.call_later(seconds, self._end, process, process.restarts)

    def _check_start(self, process: Process) -> None:
        held = self._disk.records.get("pods", {}).get(process.pod)
        if held is None or process.uid.encode() not in held.value:
            self._trace.violate("I15", f"process of {process.pod} starts before its Pod is on disk")
        for other in self.processes.values():
            if other.gang != process.gang or not self.is_alive(other):
                continue
            if other.rank == process.rank and other.job != process.job:
                self._trace.violate("I6", f"{process.pod} starts while {other.pod} runs with the same rank")
            if other.attempt != process.attempt:
                text = (
                    f"{process.pod} (attempt {process.attempt}) starts while {other.pod} (attempt {other.attempt}) runs"
                )
                self._trace.violate("I6", text)

    def is_alive(self, process: Process) -> bool:
        return not process.ended

    def kill(self, uid: str) -> None:
        process = self.processes.get(uid)
        if process is not None and not process.ended:
            process.exit_code = KILLED
            self._end(process)

    def forget(self, uid: str) -> None:
        """Called when the Pod is deleted."""
        self.processes.pop(uid, None)

    def _end(self, process: Process, restarts: int | None = None) -> None:
        """`restarts`: only if it is that run."""
        if process.ended or restarts not in (None, process.restarts):
            return
        process.ended = True
        self._trace.note("machine", f"{process.pod} ends with {process.exit_code}")
        if self.on_end is not None:
            self.on_end(process)

    def _draw_fate(self, pod: Object) -> tuple[int, float, bool]:
        """(exit code, seconds, whether it vanishes)."""
        meta = pod["metadata"]
        marks = meta.get("labels") or {}
        name, attempt = marks.get(labels.JOBSET_NAME, meta["name"]), marks.get(labels.RESTART_ATTEMPT, "0")
        story = random.Random(f"{self._seed}/{name}/{attempt}")
        trouble = story.random() < self._trouble
        own = random.Random(f"{self._seed}/{meta.get('generateName', meta['name'])}/{attempt}")
        seconds = own.choice((0.05, 1.0, 4.0, 10.0))
        if not trouble:
            return 0, seconds, False
        kind = own.choice(("fails", "hangs", "vanishes", "succeeds", "fails"))
        if kind == "hangs":
            return HANGS, 0.0, False
        if kind == "succeeds":
            return 0, seconds, False
        return own.choice((1, 2, 139)), seconds, kind == "vanishes"

    def _draw_v1_fate(self, pod: Object, restarts: int = 0) -> tuple[int, float, bool]:
        """The same for a Pod of a v1 job, with exit codes that are retryable and that are not."""
        meta = pod["metadata"]
        marks, attempt = meta["labels"], (meta.get("annotations") or {}).get(labels.POD_ATTEMPT, "0")
        attempt = f"{attempt}.{restarts}" if restarts else attempt
        story = random.Random(f"{self._seed}/{marks[JOB_NAME]}/{attempt}")
        trouble = story.random() < self._trouble
        own = random.Random(f"{self._seed}/{meta['name']}/{attempt}")
        seconds = own.choice((0.05, 1.0, 4.0, 10.0))
        if marks[OPERATOR_NAME] == MPI.controller and marks[REPLICA_TYPE] == WORKER.lower() and own.random() < 0.8:
            return HANGS, 0.0, False  # waits for commands of the launcher
        if not trouble:
            return 0, seconds, False
        kind = own.choice(("fails", "fails", "fails", "vanishes", "succeeds", "hangs"))
        if kind == "hangs":
            return HANGS, 0.0, False
        if kind == "succeeds":
            return 0, seconds, False
        return own.choice((1, 130, 137, 138, 143)), seconds, kind == "vanishes"


def read_gang_uid(pod: Object) -> str:
    """The uid of the JobSet or the v1 job that the Pod belongs to; "" if it belongs to neither."""
    marks = pod["metadata"].get("labels") or {}
    if OPERATOR_NAME not in marks:
        return str(marks.get(labels.JOBSET_UID, ""))
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def read_v1_rank(pod: Object) -> tuple[str, str] | None:
    """(replica type, index) of a Pod of a v1 job; None for other Pods."""
    marks = pod["metadata"].get("labels") or {}
    return (marks[REPLICA_TYPE], marks.get(REPLICA_INDEX, "0")) if REPLICA_TYPE in marks else None


def read_restarts(pod: Object) -> int:
    """How often containers of the Pod were restarted in it, as far as its status says."""
    entries = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(entry.get("restartCount") or 0) for entry in entries)
