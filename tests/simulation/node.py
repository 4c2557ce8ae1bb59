"""The node agent of a simulated control plane: brings Pods and processes together, as the real one does.

It is part of the control plane and crashes with it; the processes do not (`machine`). It recovers its state from the
Pods and the process table. A process starts only when its Pod is durable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from tests.simulation.acting import Acting
from tests.simulation.loop import SimLoop
from tests.simulation.machine import Machine, Process, read_restarts
from tests.simulation.trace import Trace
from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.api.training import reports
from trainmaster.api.training.pace import PaceMeter
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.client.contract import DeleteOptions, PatchType, WatchOptions
from trainmaster.kit.clock import Clock, format_time

NODE = "local"


class SimNode:
    def __init__(
        self,
        loop: SimLoop,
        clock: Clock,
        machine: Machine,
        acting: Acting,
        trace: Trace,
        random_: random.Random,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._paces = PaceMeter(clock)
        self._machine = machine
        self._acting = acting
        self._trace = trace
        self._random = random_
        self._starting: set[str] = set()
        self._stopping: set[str] = set()
        self._alive = True

    def stop(self) -> None:
        """Called after a crash: pending timers have no effect."""
        self._alive = False
        self._machine.on_end = None

    async def run(self, client: LocalClient, view: LocalView) -> None:
        self._client = client
        self._view = view
        self._machine.on_end = self._see_end
        async with client.watch(PODS, "", WatchOptions()) as events:
            self._kill_strays()
            async for event in events:
                if event.type == "DELETED":
                    self._see_gone(event.object)
                else:
                    self._see(event.object)

    def _kill_strays(self) -> None:
        present = {pod["metadata"]["uid"] for pod in self._view.list(PODS)}
        for uid in [uid for uid in self._machine.processes if uid not in present]:
            self._machine.kill(uid)
            self._machine.forget(uid)

    def _see_gone(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._machine.kill(uid)
        self._machine.forget(uid)

    def _see(self, pod: Object) -> None:
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") != NODE:
            return
        process = self._machine.processes.get(meta["uid"])
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if "deletionTimestamp" in meta:
            if meta["uid"] not in self._stopping:
                self._stopping.add(meta["uid"])
                self._later(self._random.choice((0.0, 0.05, 0.5, 3.0)), self._stop_pod, pod)
        elif phase in ("Succeeded", "Failed"):
            return
        elif process is not None and process.ended:
            self._report_end(process)
        elif process is not None and (phase == "Pending" or read_restarts(pod) < process.restarts):
            self._report_running(process)
        elif process is None and phase == "Running":
            self._report(f"{meta['namespace']}/{meta['name']}", meta["uid"], {"phase": "Failed", "reason": "Lost"})
        elif process is None and meta["uid"] not in self._starting:
            self._starting.add(meta["uid"])
            self._later(self._random.choice((0.0, 0.01, 0.3)), self._start_pod, pod)

    def _later(self, seconds: float, work: Any, pod: Object) -> None:
        self._loop.create_task(self._after(seconds, work, pod), name="node.later")

    async def _after(self, seconds: float, work: Any, pod: Object) -> None:
        await asyncio.sleep(seconds)
        if self._alive:
            await work(pod)

    async def _start_pod(self, pod: Object) -> None:
        meta = pod["metadata"]
        await self._client.durable(int(meta["resourceVersion"]))
        now = self._view.find(PODS, meta["namespace"], meta["name"])
        if now is None or now["metadata"]["uid"] != meta["uid"] or "deletionTimestamp" in now["metadata"]:
            return
        process = self._machine.start(now)
        self._report_running(process)
        if self._machine.has_reports:
            # Uses a separate random sequence, so that the rest of the world does not change.
            pause = random.Random(meta["uid"]).choice((0.02, 0.5, 2.0))
            self._later(pause, self._say_progress, now)

    async def _say_progress(self, pod: Object) -> None:
        """Writes a progress report of the program, as the status endpoint does."""
        meta, process = pod["metadata"], self._machine.processes.get(pod["metadata"]["uid"])
        name = (meta.get("labels") or {}).get(labels.JOBSET_NAME, "")
        trainjob = self._view.find(TRAIN_JOBS, meta["namespace"], name)
        jobset = self._view.find(JOB_SETS, meta["namespace"], name)
        if process is None or process.ended or trainjob is None or jobset is None:
            return
        reporter = reports.read_reporter(pod, self._view.find(JOBS, meta["namespace"], reports.read_job_name(pod)))
        job_uid = (meta.get("labels") or {}).get(labels.CONTROLLER_UID, "")
        marks = {"jobset": reporter.jobset_uid, "job": job_uid, "attempt": str(reporter.attempt)}
        metrics = [{"name": key, "value": value} for key, value in marks.items()]
        said = {"progressPercentage": 50, "metrics": metrics, "lastUpdatedTime": format_time(self._clock.now())}
        try:
            reports.check_reporter(reporter, trainjob, jobset)
            began = reports.find_beginning(jobset, reporter)
            wanted = reports.decide(said, trainjob, self._clock.now(), began)
        except StatusError:
            return
        if wanted is not None:
            pace = self._paces.measure(trainjob, wanted, reports.find_program_start(began, reporter))
            patch = {"metadata": {"uid": trainjob["metadata"]["uid"]}, **reports.build_patch(wanted, pace)}
            where = meta["namespace"]
            self._write(self._client.patch(TRAIN_JOBS, name, PatchType.MERGE, patch, where, subresource="status"))

    async def _stop_pod(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._machine.kill(meta["uid"])
        options = DeleteOptions(grace_seconds=0, uid=meta["uid"])
        self._write(self._client.delete(PODS, meta["name"], meta["namespace"], options))

    def _see_end(self, process: Process) -> None:
        if self._alive:
            self._loop.call_later(self._random.choice((0.0, 0.02)), self._report_end, process)

    def _report_running(self, process: Process) -> None:
        moment = format_time(self._clock.now())
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
        container = _build_container(process, {"running": {"startedAt": moment}})
        status = {"phase": "Running", "startTime": moment, "conditions": [ready], "containerStatuses": [container]}
        self._report(process.pod, process.uid, status)

    def _report_end(self, process: Process) -> None:
        if not process.ended or self._restart(process):
            return
        status: Object = {"phase": "Succeeded" if process.exit_code == 0 else "Failed", "conditions": []}
        if not process.vanished:
            ended = {"exitCode": process.exit_code, "finishedAt": format_time(self._clock.now())}
            status["containerStatuses"] = [_build_container(process, {"terminated": ended})]
        self._report(process.pod, process.uid, status)

    def _restart(self, process: Process) -> bool:
        """Restarts the container of a Pod that says so, unless it is being deleted."""
        found = self._view.find(PODS, *process.pod.split("/")) if self._alive else None
        if found is None or found["metadata"]["uid"] != process.uid or "deletionTimestamp" in found["metadata"]:
            return False
        if process.exit_code == 0 or process.vanished or found["spec"]["restartPolicy"] != "OnFailure":
            return False
        self._machine.restart(process, found)
        self._report_running(process)
        return True

    def _report(self, pod: str, uid: str, status: Object) -> None:
        namespace, _, name = pod.partition("/")
        found = self._view.find(PODS, namespace, name) if self._alive else None
        if found is None or found["metadata"]["uid"] != uid:
            return
        if (found.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return
        patch = {"metadata": {"uid": uid}, "status": status}
        self._write(self._client.patch(PODS, name, PatchType.MERGE, patch, namespace, subresource="status"))

    def _write(self, call: Coroutine[Any, Any, Any]) -> None:
        with self._acting.as_("node"):
            try:
                call.send(None)
            except StopIteration:
                return
            except StatusError as error:
                self._trace.note("node", f"refused: {error.message}")


def _build_container(process: Process, state: Object) -> Object:
    head = {"name": process.container, "image": "i", "imageID": "", "ready": "running" in state}
    return {**head, "restartCount": process.restarts, "state": state}
