"""The state of one seed, and its faults: which write is hit, when a process crashes, how long delays are.

There are two processes. The server is the store, the registry and the node agent, and in embedded mode the controllers.
The operator, in the other half of the seeds, is the controllers on a watch cache. Each run of a process is a
`ProcessRun`; a supervisor starts the next one after a crash. Users and the machine with its processes survive crashes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tests.simulation.acting import Acting
from tests.simulation.disk import Disk
from tests.simulation.faults import (
    ARCHIVE_SITE,
    CRASH_AFTER,
    CRASH_BEFORE,
    FULL,
    LOST_ANSWER,
    OPERATOR,
    REFUSED,
    FaultProfile,
    draw_weather,
)
from tests.simulation.loop import Group, SimClock, SimLoop
from tests.simulation.machine import Machine
from tests.simulation.retention_plans import draw_wishes
from tests.simulation.trace import Trace
from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.client.writes import Create, Delete, Patch, Write
from trainmaster.controllers.lifecycle.retention import ARCHIVE
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import Perform
from trainmaster.kit.ids import SeededIds

if TYPE_CHECKING:
    from tests.simulation.ledger import SimLedger

_RARE_STATUS = "scheduler: patch pods/status"
"""A rare site: Pods wait only in crowded worlds."""
_V1_PLURALS = {framework.plural: "v1jobs" for framework in FRAMEWORKS}
_V1_CONTROLLERS = {
    **{framework.singular: "v1job" for framework in FRAMEWORKS},
    **{f"retention-{framework.plural}": "retention-v1jobs" for framework in FRAMEWORKS},
}
_LATE_SITES = (
    "retention",
    "history-limits: ",
    "jobset: delete jobsets",
    "v1job: patch pods",
    "v1job: patch services",
    "v1job: patch roles",
)
"""Sites that occur only after the end of a job, or seldom: adoption, and scaling of MPIJobs."""


def get_site(controller: str, write: Write) -> str:
    """The site of a write: controller, verb, kind. All v1 jobs have the same reconciler, and so the same sites."""
    verb = {Create: "create", Patch: "patch", Delete: "delete"}[type(write)]
    part = f"/{write.subresource}" if isinstance(write, Patch) and write.subresource else ""
    plural = _V1_PLURALS.get(write.gvr.plural, write.gvr.plural)
    return f"{_V1_CONTROLLERS.get(controller, controller)}: {verb} {plural}{part}"


class World:
    def __init__(
        self,
        seed: int,
        loop: SimLoop,
        disk: Disk,
        catalogue: Catalogue,
        *,
        weather: FaultProfile | None = None,
    ) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = SimClock(loop)
        self.random = random.Random(seed)
        self.weather = weather or draw_weather(seed, random.Random(f"weather/{seed}"))
        self.ids = SeededIds(seed)
        self.disk = disk
        self.catalogue = catalogue
        self.controllers: Sequence[Controller] = ()
        self.cluster_controllers: frozenset[str] = frozenset()
        """Names of controllers that also run on other clusters."""
        self.trace = Trace(loop)
        self.acting = Acting()
        trouble = random.Random(f"trouble/{seed}").choice((0.0, 0.4, 0.8, 0.9))
        self.machine = Machine(loop, self.trace, disk, seed, trouble)
        self.calm = False
        """The faults are over."""
        self.disturbed: set[str] = set()
        """Names of TrainJobs with interference, whose outcome does not depend on their Pods alone."""
        self.acked: list[tuple[int, str, str]] = []
        """(revision, bucket, name) of every write that was acknowledged to a user."""
        self.newest: dict[str, int] = {}
        """Bucket to the revision of its last change."""
        self.late: list[asyncio.Task[None]] = []
        """Delayed writes whose sender no longer waits."""
        self.wishes = draw_wishes(seed)
        self.ledger: SimLedger | None = None
        """The history, if there is one."""
        self._seen: dict[str, int] = {}
        self._crashes_left = {True: self.weather.crashes, False: min(2, self.weather.crashes)}
        """Remaining crashes by whether the site occurs from the start; others are counted apart."""

    @property
    def effects(self) -> Mapping[str, Perform]:
        """The effects that reconcilers can request."""
        return {} if self.ledger is None else {ARCHIVE: self.ledger.archive}

    # Faults

    def strike(self, site: str) -> str:
        """The fault that hits this write; "" for none. The first writes of a site are hit most often."""
        weather = self.weather
        self.trace.hits[f"{weather.mode} {site}", ""] += 1
        if self.calm:
            return ""
        seen = self._seen[site] = self._seen.get(site, 0) + 1
        fault = self._draw_fault(site, self.random.random() * seen)
        if fault:
            self.count(site, fault)
            self.trace.note("fault", f"{fault}: {site}")
        return fault

    def _draw_fault(self, site: str, draw: float) -> str:
        weather = self.weather
        soon = not site.startswith(_LATE_SITES)
        if self._crashes_left[soon] and draw < weather.crash and self._is_fragile(site):
            self._crashes_left[soon] -= 1
            return CRASH_BEFORE if draw < weather.crash / 2 else CRASH_AFTER
        if site == ARCHIVE_SITE:
            return FULL if draw < weather.full else ""
        if weather.mode != OPERATOR:
            return ""
        if draw < weather.refuse:
            return REFUSED
        return LOST_ANSWER if draw < weather.refuse + weather.lose else ""

    def _is_fragile(self, site: str) -> bool:
        """Whether the site is hit in this seed. Rare sites are hit more often than creates and status writes."""
        rare = site.startswith(_LATE_SITES) or site == _RARE_STATUS
        common = (" create " in site or site.endswith("/status")) and not rare
        return random.Random(f"fragile/{self.seed}/{site}").random() < (0.2 if common else 0.9)

    def count(self, site: str, fault: str) -> None:
        self.trace.hits[f"{self.weather.mode} {site}", fault] += 1

    def draw_commit_time(self) -> float:
        if not self.calm and self.random.random() < self.weather.slow_commit:
            return self.random.random() * 2.0
        return 0.0002 + self.random.random() * 0.002

    def draw_latency(self) -> float:
        return 0.0001 + self.random.random() * 0.003

    def draw_delay(self) -> float:
        """The delay of a notice or a watch event."""
        if self.calm or not self.weather.delay:
            return 0.0
        return self.random.random() ** 2 * self.weather.delay

    def is_unlucky(self, chance: float) -> bool:
        return not self.calm and chance > 0 and self.random.random() < chance

    def draw_downtime(self) -> float:
        return self.random.choice((0.01, 0.1, 1.0, 5.0))


class Supervisor:
    """Runs a simulated process, and restarts it after a crash."""

    def __init__(self, world: World, name: str, live: Callable[[], ProcessRun]) -> None:
        self._world = world
        self._name = name
        self._make = live
        self._stopped = False
        self.life: ProcessRun | None = None

    def stop(self) -> None:
        """Ends the process for good."""
        self._stopped = True
        self.crash()

    def crash(self) -> None:
        """Crashes the process. Code of the process that calls this must raise `asyncio.CancelledError`."""
        life = self.life
        if life is not None:
            self.life = None
            life.die()

    async def run(self) -> None:
        world = self._world
        while not self._stopped:
            life = self._make()
            task = world.loop.spawn(life.run(), group=life.group, name=self._name)
            self.life = life
            world.trace.note(self._name, "starts")
            if world.weather.hasty and world.is_unlucky(0.5):
                world.loop.call_later(world.random.random() * 0.05, self._crash_early, life)
            try:
                await task
            except asyncio.CancelledError:
                if not life.group.dead:
                    raise
            except BaseException as error:  # noqa: BLE001 - whatever ends the process is what we look for
                if not life.group.dead:
                    world.trace.violate("I14", f"the {self._name} has ended by itself: {error!r}")
                    return
            self.life = None
            await asyncio.sleep(world.draw_downtime())

    def _crash_early(self, life: ProcessRun) -> None:
        if self.life is life and not self._world.calm:
            self._world.trace.note("fault", f"{self._name} crashes during recovery")
            self.crash()


class ProcessRun:
    """One run of a process, from its start to a crash."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.group = Group(name)

    async def run(self) -> None:
        raise NotImplementedError

    def die(self) -> None:
        self.group.kill()
