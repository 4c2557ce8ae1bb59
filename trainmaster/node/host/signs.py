"""What this machine sees of the jobs that run on it, besides their reports: for the question whether they stand still.

Fed together with the measurement of their usage (`app.usage`), every ten seconds. In memory only: after a start of the
server nothing is known about a job until it has been looked at twice.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from trainmaster.api.lifecycle.stalls import SAVING, STOPPED, JobSign
from trainmaster.api.training.pace import JobPace, read_pace
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import PodMeasurement
from trainmaster.kit.clock import Clock, parse_time
from trainmaster.node.disk.results import Results

_SAVING_SECONDS = 60.0
"""For how long a checkpoint counts as being written after a change of its files."""


@dataclass(frozen=True, slots=True)
class JobLook:
    """One look at a job."""

    output: object = None
    """Another value means that it has printed something; None if it was not looked at."""
    files: object = None
    """Another value means that files of a checkpoint were written; None if they were not looked at."""
    is_busy: bool = False
    """Whether any of its ranks uses a CPU or a GPU."""
    is_stopped: bool = False
    """Whether processes of a rank are stopped by a signal or a debugger."""


@dataclass(slots=True)
class _Track:
    look: JobLook
    began: float
    seen: float
    quiet: float
    """Since when it has been idle, in boot time."""
    stopped: float = -math.inf
    saved: float = -math.inf


class JobSigns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tracks: dict[str, _Track] = {}

    def read_wall(self) -> datetime:
        return self._clock.now()

    def note(self, uid: str, look: JobLook) -> None:
        now = self._clock.boot()
        track = self._tracks.get(uid)
        if track is None:
            self._tracks[uid] = track = _Track(look, now, now, now)
        is_saving = _differ(look.files, track.look.files)
        if is_saving:
            track.saved = now
        if look.is_stopped:
            track.stopped = now
        if is_saving or look.is_busy or _differ(look.output, track.look.output):
            track.quiet = now
        track.look, track.seen = look, now

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all others, which do not run any more."""
        for uid in self._tracks.keys() - set(uids):
            del self._tracks[uid]

    def count_since_stop(self, uid: str) -> float:
        """Seconds since processes of the job were last seen stopped; infinite if they never were."""
        track = self._tracks.get(uid)
        return math.inf if track is None else self._clock.boot() - track.stopped

    def find(self, uid: str) -> JobSign | None:
        track, now = self._tracks.get(uid), self._clock.boot()
        if track is None:
            return None
        # A job that was not looked at for a while has not been idle for longer than until then.
        idle = None if track.seen == track.began else track.seen - track.quiet
        last = max(track.stopped, min(track.saved + _SAVING_SECONDS, now))
        excuse = STOPPED if track.stopped == track.seen else SAVING if now - track.saved < _SAVING_SECONDS else ""
        return JobSign(idle, now - last, excuse)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


_JUST_SECONDS = 8.0
"""A job that reports steps does so every five seconds."""
_BUSY_CORES = 0.01
"""A waiting Python program with its threads uses less."""


class LookedAtRank(Protocol):
    """A Pod of a job, and what it uses; None if it did not answer."""

    @property
    def pod(self) -> Pod: ...

    @property
    def job(self) -> TrainingJob: ...

    @property
    def use(self) -> PodMeasurement | None: ...


@dataclass(frozen=True, slots=True)
class SignReader:
    """Looks at all running jobs and notes what it sees."""

    signs: JobSigns
    results: Results
    find_logs: Callable[[str], str]
    """The directory with the logs of a Pod, by its uid."""
    has_stopped: Callable[[str], bool]
    """Whether processes of a Pod are stopped, by its uid."""

    async def look(self, ranks: Iterable[LookedAtRank]) -> None:
        pods: dict[str, list[str]] = {}
        paces: dict[str, JobPace] = {}
        measured: dict[str, PodMeasurement] = {}
        for rank in ranks:
            uid = rank.job.uid
            if uid not in pods:
                pods[uid], paces[uid] = [], read_pace(rank.job.raw)
            pods[uid].append(rank.pod.uid)
            if rank.use is not None:
                measured[rank.pod.uid] = rank.use
        self.signs.keep(pods)
        # Files are only looked at where they can matter, because that costs most.
        now = self.signs.read_wall()
        silent = {uid: pods[uid] for uid, pace in paces.items() if not pace.was_reported}
        slow = [uid for uid, pace in paces.items() if not _has_just_advanced(pace, now)]
        # Reading directories may block, on a disk that is not local for long.
        outputs, files = await asyncio.to_thread(self._mark_files, silent, slow) if slow or silent else ({}, {})
        self.note_all(pods, measured, outputs, files)

    def note_all(
        self,
        pods: Mapping[str, Collection[str]],
        measured: Mapping[str, PodMeasurement],
        outputs: Mapping[str, object],
        files: Mapping[str, object],
    ) -> None:
        """All by the uid of a job, except what Pods use."""
        for uid, members in pods.items():
            is_busy = any(_is_busy(measured.get(pod)) for pod in members)
            is_stopped = any(map(self.has_stopped, members))
            self.signs.note(uid, JobLook(outputs.get(uid), files.get(uid), is_busy, is_stopped))

    def _mark_files(
        self, silent: Mapping[str, Collection[str]], slow: Collection[str]
    ) -> tuple[dict[str, object], dict[str, object]]:
        outputs: dict[str, object] = {
            uid: tuple(_mark_logs(self.find_logs(pod)) for pod in pods) for uid, pods in silent.items()
        }
        return outputs, {uid: self.results.mark_checkpoints(uid) for uid in slow}


def _has_just_advanced(pace: JobPace, now: datetime) -> bool:
    """By the wall clock: if that is wrong, files are looked at in vain."""
    if not pace.advanced_at:
        return False
    return abs((now - parse_time(pace.advanced_at)).total_seconds()) < _JUST_SECONDS


def _is_busy(use: PodMeasurement | None) -> bool:
    """A Pod that was not measured may be."""
    return use is None or use.cpu >= _BUSY_CORES or any(gpu.percent for gpu in use.gpus)


def _mark_logs(folder: str) -> tuple[int, int]:
    """(last change in ns, size) of the files of all containers."""
    changed = size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(directory, name))
            except OSError:
                continue  # rotated meanwhile
            changed, size = max(changed, found.st_mtime_ns), size + found.st_size
    return changed, size
