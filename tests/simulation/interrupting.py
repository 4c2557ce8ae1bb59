"""Passes that take steps, as those over Jobs with thousands of Pods do, and what happens between two steps.

A world has only a few Pods. If its weather says so, its Jobs count as large, and a step handles a single Pod. Between
two steps time passes, so that others write, and the process may crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tests.simulation.faults import CRASH_BEFORE, STEP_SITE
from tests.simulation.patching import AttributePatch
from tests.simulation.world import World
from trainmaster.controllers.job import claims, facts, passes, pod_counts
from trainmaster.engine import manager

_CRASH = 0.02
"""Probability of a crash at a step, in worlds where writes may crash."""
_MOST_CRASHES = 2
_PAUSES = (0.0, 0.0, 0.0005, 0.005, 0.05)
"""Seconds between two steps. 0: only what is ready runs."""


class StepInterrupter:
    def __init__(self, world: World, crash: Callable[[], None]) -> None:
        self._world = world
        self._crash = crash
        self._crashes_left = _MOST_CRASHES if world.weather.crash else 0

    @property
    def patches(self) -> Sequence[AttributePatch]:
        if not self._world.weather.large:
            return ()
        return (
            *((module, "SMALL", lambda _: 0) for module in (facts, claims)),
            *((module, "_STEP", lambda _: 1) for module in (facts, pod_counts, passes)),
            (manager, "take_steps", lambda original: partial(original, pause=self._interrupt)),
        )

    async def _interrupt(self) -> None:
        world = self._world
        world.count(STEP_SITE, "")
        if self._crashes_left and world.is_unlucky(_CRASH):
            self._crashes_left -= 1
            world.count(STEP_SITE, CRASH_BEFORE)
            world.trace.note("fault", f"{CRASH_BEFORE}: {STEP_SITE}")
            self._crash()
            raise asyncio.CancelledError
        await asyncio.sleep(0.0 if world.calm else world.random.choice(_PAUSES))
