"""Carries out the machine's instructions for one Pod: directories, records, ports and processes together.

The record of an attempt is written before its process starts, completed when it runs, and closed when it has ended;
`load_state` rebuilds the machine's state from records after a restart of the control plane.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import Object
from trainmaster.api.supported import list_unsupported
from trainmaster.kit.clock import Clock, format_time, parse_time
from trainmaster.node import machine
from trainmaster.node.fields import POD
from trainmaster.node.launch import Launch, LaunchError, Place, build_launch
from trainmaster.node.machine import ContainerState, Ended, PodState, Refused, Stage
from trainmaster.node.podfiles import PodFiles, Record
from trainmaster.node.ports import PortLeases
from trainmaster.node.supervisor import Exit, Identity, Supervisor, read_boot_id

log = logging.getLogger(__name__)

NoteEnd = Callable[[str, str, int, Ended], None]
"""(Pod uid, container, attempt, how it ended)."""

LOST = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class Settings:
    """Given by `app`."""

    root: Path
    """Where Pod directories are."""
    python_prefix: str
    """The Python environment that stands in for images: that of `trainmaster up`."""
    path: str
    name: str = "local"
    workers: int = 4


@dataclass(slots=True)
class _Process:
    pid: int
    over: asyncio.Event


class PodRunner:
    def __init__(self, settings: Settings, supervisor: Supervisor, clock: Clock) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._clock = clock
        self._ports = PortLeases()
        self._gangs: dict[str, set[str]] = {}
        self._processes: dict[tuple[str, str], _Process] = {}

    def load_state(self, pod: Object, now: datetime, note_end: NoteEnd) -> PodState:
        """What is known of a Pod that is seen for the first time in this life of the control plane."""
        unsupported = list_unsupported(pod["spec"], POD, "spec")
        if unsupported:
            text = f"this node does not carry out {', '.join(unsupported)}"
            return machine.make_state(pod, now, Refused("Unsupported", text))
        started = (pod.get("status") or {}).get("startTime")
        state = machine.make_state(pod, parse_time(started) if started else now)
        files = self._files(pod)
        files.make()
        gang = _get_gang(pod)
        self._gangs.setdefault(gang, set()).add(pod["metadata"]["uid"])
        for asked, leased in files.read_ports().items():
            self._ports.restore(gang, asked, leased)
        for record in files.read_records():
            state = machine.replace_container(state, self._recover(pod, files, record, note_end, now))
        return state

    def _recover(
        self, pod: Object, files: PodFiles, record: Record, note_end: NoteEnd, now: datetime
    ) -> ContainerState:
        begun = parse_time(record.started_at) if record.started_at else None
        base = ContainerState(record.container, record.attempt, started_at=begun)
        if record.exit_code is not None:
            return replace(base, stage=Stage.ENDED, ended=_read_end(record))
        who = Identity(record.pid, record.start_ticks, record.boot_id)
        uid = pod["metadata"]["uid"]
        on_exit = self._make_on_exit(uid, files, record, note_end)
        if record.pid and self._supervisor.adopt(who, on_exit):
            self._processes[uid, record.container] = _Process(record.pid, asyncio.Event())
            log.info("process adopted", extra={"action": "node.adopted", "container": record.container})
            return replace(base, stage=Stage.RUNNING)
        ended = _make_end(Exit(None), begun, now, rebooted=record.boot_id not in ("", read_boot_id()))
        files.write_record(_close(record, ended))
        return replace(base, stage=Stage.ENDED, ended=ended)

    def start(
        self, pod: Object, container: str, attempt: int, note_end: NoteEnd
    ) -> tuple[datetime | None, Sequence[str]]:
        """Starts one attempt. The time at which it began (None when it could not), and what was approximated."""
        files = self._files(pod)
        record = Record(container, attempt)
        files.write_record(record)
        now = self._clock.now()
        uid = pod["metadata"]["uid"]
        try:
            launch = self._build_launch(pod, container, files)
            record = self._spawn(uid, files, record, launch, note_end, now)
        except LaunchError as error:
            ended = Ended(128, None, now, "StartError", str(error))
            files.write_record(_close(record, ended))
            note_end(uid, container, attempt, ended)
            return None, ()
        return now, launch.approximations if attempt == 0 else ()

    def _spawn(
        self, uid: str, files: PodFiles, record: Record, launch: Launch, note_end: NoteEnd, now: datetime
    ) -> Record:
        # Known before the process starts, because its end may be seen before the record is complete.
        live = [replace(record, started_at=format_time(now))]

        def on_exit(exit: Exit) -> None:
            self._make_on_exit(uid, files, live[0], note_end)(exit)

        output = files.open_log(record.container, record.attempt)
        try:
            who = self._supervisor.start(launch, output, on_exit)
        finally:
            os.close(output)
        live[0] = replace(live[0], pid=who.pid, start_ticks=who.start_ticks, boot_id=who.boot_id)
        files.write_record(live[0])
        self._processes[uid, record.container] = _Process(who.pid, asyncio.Event())
        return live[0]

    def _build_launch(self, pod: Object, name: str, files: PodFiles) -> Launch:
        gang = _get_gang(pod)
        place = Place(
            directory=str(files.work),
            python_prefix=self._settings.python_prefix,
            path=self._settings.path,
            lease_port=lambda asked: self._ports.lease(gang, asked),
        )
        container = next(entry for entry in pod["spec"]["containers"] if entry["name"] == name)
        launch = build_launch(pod, container, place)
        ports = self._ports.list_leases(gang)
        if ports:
            files.write_ports(ports)
        return launch

    def _make_on_exit(self, uid: str, files: PodFiles, record: Record, note_end: NoteEnd) -> Callable[[Exit], None]:
        def on_exit(exit: Exit) -> None:
            begun = parse_time(record.started_at) if record.started_at else None
            ended = _make_end(exit, begun, self._clock.now())
            files.write_record(_close(record, ended))
            process = self._processes.pop((uid, record.container), None)
            if process is not None:
                process.over.set()
            note_end(uid, record.container, record.attempt, ended)

        return on_exit

    def signal(self, uid: str, container: str, *, force: bool) -> None:
        process = self._processes.get((uid, container))
        if process is not None:
            self._supervisor.send(process.pid, force=force)

    def kill(self, uid: str) -> None:
        for owner, container in tuple(self._processes):
            if owner == uid:
                self.signal(uid, container, force=True)

    async def remove(self, pod: Object) -> None:
        """Waits for what was killed, then removes the directory and gives the gang's ports back with its last Pod."""
        uid = pod["metadata"]["uid"]
        for (owner, _), process in tuple(self._processes.items()):
            if owner == uid:
                await process.over.wait()
        gang = _get_gang(pod)
        members = self._gangs.get(gang, set())
        members.discard(uid)
        if not members:
            self._gangs.pop(gang, None)
            self._ports.release(gang)
        await asyncio.get_running_loop().run_in_executor(None, self._files(pod).remove)

    async def sweep(self, known: set[str]) -> None:
        """Ends and removes what Pods left behind that were deleted while nobody ran this node."""
        root = self._settings.root
        if not root.is_dir():
            return
        for directory in [entry for entry in root.iterdir() if entry.name not in known]:
            files = PodFiles(root, directory.name)
            for record in files.read_records():
                if record.pid and record.exit_code is None:
                    await self._end_stray(record)
            log.info("stray pod directory removed", extra={"action": "node.swept", "uid": directory.name})
            files.remove()

    async def _end_stray(self, record: Record) -> None:
        over = asyncio.Event()
        who = Identity(record.pid, record.start_ticks, record.boot_id)
        if self._supervisor.adopt(who, lambda exit: over.set()):
            self._supervisor.send(record.pid, force=True)
            await over.wait()

    def _files(self, pod: Object) -> PodFiles:
        return PodFiles(self._settings.root, pod["metadata"]["uid"])


def _get_gang(pod: Object) -> str:
    """Pods that meet at one rendezvous: those of one JobSet, else the Pod alone."""
    meta = pod["metadata"]
    return str((meta.get("labels") or {}).get(JOBSET_UID) or meta["uid"])


def _make_end(exit: Exit, begun: datetime | None, now: datetime, *, rebooted: bool = False) -> Ended:
    if exit.code is not None:
        return Ended(exit.code, begun, now, "Completed" if exit.code == 0 else "Error", signal=exit.signal)
    text = "the process ended while the control plane that started it was not running, so its exit code is not known"
    if rebooted:
        text = "the machine was restarted while the process ran"
    return Ended(137, begun, now, LOST, text)


def _close(record: Record, ended: Ended) -> Record:
    return replace(
        record,
        finished_at=format_time(ended.finished_at),
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
        message=ended.message,
    )


def _read_end(record: Record) -> Ended:
    assert record.exit_code is not None
    begun = parse_time(record.started_at) if record.started_at else None
    finished = parse_time(record.finished_at)
    return Ended(record.exit_code, begun, finished, record.reason, record.message, record.signal)
