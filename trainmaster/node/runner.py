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
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.api.supported import list_unsupported
from trainmaster.kit.clock import Clock, format_time, parse_time
from trainmaster.node.fields import POD
from trainmaster.node.launch import Launch, LaunchError, Place, build_launch
from trainmaster.node.machine.model import PodPlan
from trainmaster.node.machine.outcome import end_pod
from trainmaster.node.machine.state import ContainerState, Ended, Ending, Moment, PodState, Stage, make_state
from trainmaster.node.machine.steps import Start
from trainmaster.node.podfiles import PodFiles, Record
from trainmaster.node.ports import PortLeases
from trainmaster.node.spawner import Exit, Identity, Supervisor, read_boot_id
from trainmaster.node.tracked import get_gang

log = logging.getLogger(__name__)

LOST = "ContainerStatusUnknown"


class Observer(Protocol):
    """Who hears of containers that begin and end."""

    def note_started(self, uid: str, container: str, attempt: int, when: datetime) -> None: ...

    def note_ended(self, uid: str, container: str, attempt: int, ended: Ended) -> None: ...


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


@dataclass(frozen=True, slots=True)
class Prepared:
    launches: tuple[tuple[Start, Launch], ...]


class PodRunner:
    def __init__(self, settings: Settings, supervisor: Supervisor, clock: Clock, observer: Observer) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._clock = clock
        self._observer = observer
        self._ports = PortLeases()
        self._gangs: dict[str, set[str]] = {}
        self._processes: dict[tuple[str, str], _Process] = {}

    async def load_state(self, pod: Object, plan: PodPlan, now: Moment) -> PodState:
        """What is known of a Pod that is seen for the first time in this life of the control plane."""
        started = (pod.get("status") or {}).get("startTime")
        state = make_state(plan, now, started_at=parse_time(started) if started else None)
        unsupported = list_unsupported(pod["spec"], POD, "spec")
        if unsupported:
            text = f"this node does not carry out {', '.join(unsupported)}"
            return end_pod(plan, state, Ending("Unsupported", text))
        files = self._files(pod)
        files.make()
        gang = get_gang(pod)
        self._gangs.setdefault(gang, set()).add(pod["metadata"]["uid"])
        for asked, leased in files.read_ports().items():
            self._ports.restore(gang, asked, leased)
        for record in files.read_records():
            state = state.put(self._recover(pod, files, record, now))
        return state

    def _recover(self, pod: Object, files: PodFiles, record: Record, now: Moment) -> ContainerState:
        begun = parse_time(record.started_at) if record.started_at else None
        since = now.anchor(begun) if begun else now.boot
        base = ContainerState(record.container, record.attempt, started_at=begun, since=since, series=record.attempt)
        if record.exit_code is not None:
            ended = _read_end(record)
            return replace(base, stage=Stage.ENDED, ended=ended, over=now.anchor(ended.finished_at))
        who = Identity(record.pid, record.start_ticks, record.boot_id)
        uid = pod["metadata"]["uid"]
        on_exit = self._make_on_exit(uid, files, record)
        if record.pid and self._supervisor.adopt(who, on_exit):
            self._processes[uid, record.container] = _Process(record.pid, asyncio.Event())
            log.info("process adopted", extra={"action": "node.adopted", "container": record.container})
            return replace(base, stage=Stage.RUNNING)
        ended = _make_end(Exit(None), begun, now.wall, rebooted=record.boot_id not in ("", read_boot_id()))
        files.write_record(_close(record, ended))
        return replace(base, stage=Stage.ENDED, ended=ended, over=now.boot)

    async def prepare(self, pod: Object, starts: Sequence[Start]) -> tuple[Prepared, dict[Start, LaunchError]]:
        """Everything that must be there before the containers begin; what cannot begin, with its reason."""
        launches: list[tuple[Start, Launch]] = []
        refused: dict[Start, LaunchError] = {}
        for item in starts:
            try:
                launches.append((item, self._build_launch(pod, item.container, self._files(pod))))
            except LaunchError as error:
                refused[item] = error
                record = Record(item.container, item.attempt)
                ended = Ended(128, None, self._clock.now(), "StartError", str(error))
                self._files(pod).write_record(_close(record, ended))
        return Prepared(tuple(launches)), refused

    async def launch(self, pod: Object, prepared: Prepared) -> Sequence[str]:
        """Begins the attempts. What was approximated, said once."""
        files, uid = self._files(pod), pod["metadata"]["uid"]
        notes: list[str] = []
        for item, launch in prepared.launches:
            record = Record(item.container, item.attempt)
            files.write_record(record)
            now = self._clock.now()
            try:
                self._spawn(uid, files, record, launch, now)
            except LaunchError as error:
                ended = Ended(128, None, now, "StartError", str(error))
                files.write_record(_close(record, ended))
                self._observer.note_ended(uid, item.container, item.attempt, ended)
                continue
            self._observer.note_started(uid, item.container, item.attempt, now)
            notes += launch.approximations if item.attempt == 0 else ()
        return notes

    def _spawn(self, uid: str, files: PodFiles, record: Record, launch: Launch, now: datetime) -> None:
        # Known before the process starts, because its end may be seen before the record is complete.
        live = [replace(record, started_at=format_time(now))]

        def on_exit(exit: Exit) -> None:
            self._make_on_exit(uid, files, live[0])(exit)

        output = files.open_log(record.container, record.attempt)
        try:
            who = self._supervisor.start(launch, output, on_exit)
        finally:
            os.close(output)
        live[0] = replace(live[0], pid=who.pid, start_ticks=who.start_ticks, boot_id=who.boot_id)
        files.write_record(live[0])
        self._processes[uid, record.container] = _Process(who.pid, asyncio.Event())

    def _build_launch(self, pod: Object, name: str, files: PodFiles) -> Launch:
        gang = get_gang(pod)
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

    def _make_on_exit(self, uid: str, files: PodFiles, record: Record) -> Callable[[Exit], None]:
        def on_exit(exit: Exit) -> None:
            begun = parse_time(record.started_at) if record.started_at else None
            ended = _make_end(exit, begun, self._clock.now())
            files.write_record(_close(record, ended))
            process = self._processes.pop((uid, record.container), None)
            if process is not None:
                process.over.set()
            self._observer.note_ended(uid, record.container, record.attempt, ended)

        return on_exit

    async def signal(self, uid: str, container: str, number: int) -> None:
        process = self._processes.get((uid, container))
        if process is not None:
            self._supervisor.send(process.pid, force=False)

    async def kill(self, uid: str, container: str) -> None:
        process = self._processes.get((uid, container))
        if process is not None:
            self._supervisor.send(process.pid, force=True)

    async def settle(self, uid: str) -> None:
        """The Pod is over; what it needed to run may go."""

    async def remove(self, pod: Object) -> None:
        """Kills what runs and waits for it. The directory goes, and with the last Pod the gang's ports."""
        uid = pod["metadata"]["uid"]
        for (owner, container), process in tuple(self._processes.items()):
            if owner == uid:
                await self.kill(uid, container)
                await process.over.wait()
        gang = get_gang(pod)
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
