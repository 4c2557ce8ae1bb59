"""Prepares warm zygotes before the first Pod needs them, and gives their memory back when the machine is short of it.

After the start of the server it waits until the machine is idle. Then one zygote after another imports, with the lowest
priority where that can be undone, for what the last Pods used and for the server's own environment. As soon as a Pod is
started the import is stopped (`WarmStarts.choose`), and it is tried again when the machine is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.kit.clock import Clock
from trainmaster.node.host.hardware import measure_memory, read_free_memory, read_hardware
from trainmaster.node.host.meter import read_machine_cpu
from trainmaster.node.images.contract import Environment, ImageError
from trainmaster.node.shims.learned import WarmUse
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.node.shims.warm_starts import WarmStarts
from trainmaster.node.shims.zygotes import WarmReport

_FIRST_SECONDS, _SECONDS, _OBSERVED_SECONDS = 1.0, 5.0, 2.0
"""Before the machine is looked at for the first time, for another time, and for which it is looked at."""
_WAITS = "it waits until the machine is idle"
_BUSY_SHARE = 0.25
"""Of the CPUs: a machine that uses less is idle."""
_SHORT, _SPARE = 16, 8
"""Parts of the memory: with less than the first one free it is short, with more than the second one there is some to
spare."""


@dataclass(frozen=True, slots=True)
class Idleness:
    """Whether the machine has CPU and memory left for work that can wait."""

    cores: float = field(default_factory=lambda: read_hardware().cpus_milli / 1000)
    memory: int = field(default_factory=measure_memory)
    read_cpu: Callable[[], int] = read_machine_cpu
    """Nanoseconds of CPU time that were used so far."""
    read_free: Callable[[], int] = read_free_memory

    def is_memory_short(self) -> bool:
        return self.read_free() < self.memory // _SHORT

    def has_spare_memory(self) -> bool:
        return self.read_free() >= self.memory // _SPARE

    async def is_idle(self, clock: Clock) -> bool:
        """Takes two seconds."""
        before, at = self.read_cpu(), clock.monotonic()
        await clock.sleep(_OBSERVED_SECONDS)
        used = (self.read_cpu() - before) / 1e9
        return used < _BUSY_SHARE * self.cores * (clock.monotonic() - at)


class IdlePreparation:
    def __init__(
        self,
        starts: WarmStarts,
        supervisor: Supervisor,
        get_environment: Callable[[str], Environment],
        machine: Idleness,
        clock: Clock,
    ) -> None:
        self._starts = starts
        self._zygotes = supervisor.zygotes
        self._ensure = supervisor.ensure_warm
        self._get_environment = get_environment
        self._machine = machine
        self._clock = clock
        self._waiting: list[WarmUse] = []
        """The next one last."""
        self._refused: dict[WarmUse, str] = {}
        self._is_short = False

    async def work(self) -> None:
        """Runs forever."""
        await self._clock.sleep(_FIRST_SECONDS)
        self._waiting = (await asyncio.to_thread(self._starts.list_expected))[::-1]
        while True:
            self._is_short = self._machine.is_memory_short()
            if self._is_short:
                self._zygotes.drop_all_warm()
            elif self._waiting and await self._machine.is_idle(self._clock):
                await self._prepare(self._waiting[-1])
                continue
            await self._clock.sleep(_SECONDS)

    async def _prepare(self, use: WarmUse) -> None:
        """It stays among those that wait if it was stopped."""
        try:
            zygote = self._starts.find_zygote(use, self._get_environment(use.prefix))
        except (ImageError, OSError) as error:
            self._refuse(use, str(error))
            return
        if zygote is None:
            self._refuse(use, "it has no torch")
        elif not self._zygotes.has_room() or not self._machine.has_spare_memory():
            self._refuse(use, "there is not enough memory for it")
        else:
            await self._ensure(zygote, is_idle=True)
            is_stopped = self._zygotes.needs_warm(zygote)
            is_worth_less = self._zygotes.has_failed(zygote) and bool(zygote.learned)  # then without what was learned
            if not is_stopped and not is_worth_less:
                self._waiting.remove(use)

    def _refuse(self, use: WarmUse, why: str) -> None:
        self._waiting.remove(use)
        self._refused[use] = why

    def describe(self) -> list[WarmReport]:
        """What is prepared, and why other things are not."""
        why = dict.fromkeys(reversed(self._waiting), _WAITS) | self._refused
        if self._is_short:
            why = dict.fromkeys(why, "the machine is short of memory")
        found = self._zygotes.describe_warm()
        known = {(report.namespace, report.environment) for report in found}
        missing = {(use.namespace, use.prefix or "the server's environment"): text for use, text in why.items()}
        return [
            *found,
            *(WarmReport(*place, f"not prepared: {text}") for place, text in missing.items() if place not in known),
        ]
