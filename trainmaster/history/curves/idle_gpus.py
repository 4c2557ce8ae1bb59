"""Reports jobs whose GPUs have done nothing for a set time: an event each time it has passed, a mark, a metric.

A job is idle while every one of its GPUs reports a utilisation of 0; whoever computes on one of eight is not. The time
is counted in memory, in boot time, so a restart of the server lets it begin again; a mark that was there stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.labels import IDLE_GPUS_SINCE
from trainmaster.api.meta import Object
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, PatchType
from trainmaster.engine.events import Recorder
from trainmaster.engine.plan import Note
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import GpuUsage
from trainmaster.kit.clock import Clock, format_time

log = logging.getLogger(__name__)

REPORTER = "trainmaster-usage"
FindJob: TypeAlias = Callable[[TrainingJob], TrainingJob | None]
"""The job as it is now; None if it is gone."""


@dataclass(frozen=True, slots=True)
class JobGpus:
    """What the GPUs of a job did when they were measured last."""

    job: TrainingJob
    gpus: Sequence[GpuUsage]

    @property
    def is_idle(self) -> bool:
        return all(gpu.percent == 0 for gpu in self.gpus)


@dataclass(slots=True)
class _Spell:
    """Since a job's GPUs do nothing."""

    job: TrainingJob
    gpus: int
    boot: float
    since: str
    reported: int = 0
    """How many periods were reported."""


class IdleGpus:
    def __init__(self, client: Client, recorder: Recorder, find: FindJob, clock: Clock, seconds: float) -> None:
        """`seconds`: the time after which a job is reported; 0 for never."""
        self._client = client
        self._recorder = recorder
        self._find = find
        self._clock = clock
        self._seconds = seconds
        self._spells: dict[str, _Spell] = {}

    def count(self) -> int:
        """The GPUs of the jobs that are reported now."""
        return sum(spell.gpus for spell in self._spells.values() if spell.reported)

    async def look(self, measured: Mapping[str, JobGpus]) -> None:
        """`measured`: by uid, all jobs that run and have GPUs."""
        if not self._seconds:
            return
        for uid in [uid for uid in self._spells if uid not in measured]:
            await self._end(self._spells.pop(uid).job)
        for uid, one in measured.items():
            if not one.is_idle:
                self._spells.pop(uid, None)
                await self._end(one.job)
                continue
            spell = self._spells.get(uid) or self._begin(uid, one)
            periods = int((self._clock.boot() - spell.boot) // self._seconds)
            if periods > spell.reported:
                spell.reported = periods
                await self._report(one, spell)

    def _begin(self, uid: str, one: JobGpus) -> _Spell:
        known = one.job.annotations.get(IDLE_GPUS_SINCE, "")
        since = known or format_time(self._clock.now())
        spell = self._spells[uid] = _Spell(one.job, len(one.gpus), self._clock.boot(), since)
        return spell

    async def _report(self, one: JobGpus, spell: _Spell) -> None:
        if one.job.idle_gpus_since != spell.since:
            await self._mark(one.job, spell.since)
        number = f"its {spell.gpus} GPUs have" if spell.gpus > 1 else "its GPU has"
        text = f"{number} done nothing since {spell.since}: `trainmaster logs` shows what it does, `suspend` frees them"
        await self._recorder.record(Note(one.job.raw, "IdleGPUs", text, warning=True, action="Measuring"), REPORTER)

    async def _end(self, job: TrainingJob) -> None:
        found = self._find(job)
        if found is not None and found.uid == job.uid and found.idle_gpus_since:
            await self._mark(found, None)

    async def _mark(self, job: TrainingJob, since: str | None) -> None:
        patch: Object = {"metadata": {"uid": job.uid, "annotations": {IDLE_GPUS_SINCE: since}}}
        try:
            await self._client.patch(job.gvr, job.name, PatchType.MERGE, patch, job.namespace)
        except NotFound:
            return
        except StatusError as error:
            log.warning("idle GPUs not marked", extra={"action": "usage.unmarked", "error": str(error)})
