"""Runs one seed: faults and users for a minute, then no faults until nothing changes, then a restart of all processes.

Tests and tools call `run_seed`. The same seed gives the same digest in any process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.simulation import reporting, retaining, sharing, v1_resting  # noqa: F401  # for the checks they register
from tests.simulation.base import Base, build_base
from tests.simulation.checking import Checker
from tests.simulation.disk import Disk
from tests.simulation.draining import DRAINING
from tests.simulation.faults import EMBEDDED, OPERATOR, FaultProfile
from tests.simulation.interrupting import StepInterrupter
from tests.simulation.ledger import SimLedger
from tests.simulation.loop import SimLoop
from tests.simulation.patching import patch_attributes
from tests.simulation.planted import Planted
from tests.simulation.quiescence import REST_CHECKS, Rest
from tests.simulation.remote import Operator, RemoteClient
from tests.simulation.server import Server
from tests.simulation.trace import SHOWN, Violation
from tests.simulation.users import UserAction, add_restarts, add_wishes, draw_deeds
from tests.simulation.v1_plans import FRAMEWORKS as V1_FRAMEWORKS
from tests.simulation.v1_plans import add_v1_deeds, has_v1_jobs
from tests.simulation.v1_users import V1Users
from tests.simulation.world import Supervisor, World
from trainmaster.api.lifecycle.stalls import POLICIES, StallRules
from trainmaster.app.workloads import CHAIN
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.trainjob.reconciler import build_controller as build_trainjob_controller
from trainmaster.engine.controller import Controller
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.models.v1jobs import MODELS

SPAN = 60.0
"""Virtual seconds of faults."""
_STALLING_RATIO, _STALLING = 12, 3
"""A third of the worlds whose programs report: there, steps may stand still for seconds only."""
QUIET = 130.0
"""Longer than every TTL, deadline and back-off of the jobs here: without writes for so long, the world is at rest."""
PATIENCE = 30
"""Number of intervals of QUIET seconds after which a world that still writes is a violation."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    mode: str
    digest: str
    virtual_seconds: float
    writes: int
    hits: Counter[tuple[str, str]]
    violations: Sequence[Violation]
    timeline: str
    """Only after a violation, or if requested."""


def run_seed(
    seed: int,
    *,
    planted: Planted | None = None,
    weather: FaultProfile | None = None,
    deeds: Sequence[UserAction] | None = None,
    timeline: bool = False,
    lines: int = SHOWN,
) -> Result:
    """`weather` and `deeds` override those of the seed."""
    base = build_base()
    loop = SimLoop()
    world = World(seed, loop, Disk(base.image, base.revision), base.catalogue, weather=weather)
    run = _Run(world, base, planted, deeds)
    patches = (*run.patches, *(planted.patches if planted is not None else ()))
    with _quiet_process(), patch_attributes(patches):
        try:
            loop.run_until_complete(run.play())
        finally:
            loop.close()
    trace = world.trace
    return Result(
        seed,
        world.weather.mode,
        trace.digest,
        loop.now,
        run.checker.writes,
        trace.hits,
        tuple(trace.violations),
        trace.render(lines) if trace.violations or timeline else "",
    )


@contextmanager
def _quiet_process() -> Iterator[None]:
    """Disables logging (faults cause thousands of lines) and garbage collection."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        logging.disable(level)
        if collects:
            gc.enable()


def _build_controllers(
    seed: int, lifecycle: LifecycleContext, count_watched: Callable[[], float], *, drains: bool
) -> tuple[Sequence[Controller], frozenset[str]]:
    """All controllers, and the names of those that also run on other clusters. `count_watched`: seconds since whoever
    takes reports was started; `drains`: with those of a drain, which would only look in other runs."""
    here = [model for model in MODELS if has_v1_jobs(seed) and model.framework in V1_FRAMEWORKS]
    absent = {model.framework.singular for model in MODELS if model not in here}
    chain = [item for item in CHAIN if item.name not in absent]
    rules = StallRules(count_watched=count_watched)
    if seed % _STALLING_RATIO == _STALLING:
        # Programs report once, so those that run for longer than this stall.
        policy = POLICIES[seed // _STALLING_RATIO % len(POLICIES)]
        rules = replace(rules, seconds=1.0, phase_seconds=3.0, policy=policy)
    trainjob = build_trainjob_controller(FrameworkContext(stalls=rules))
    chain = [trainjob if item.name == trainjob.name else item for item in chain]
    lasting = [
        retention.build_controller(lifecycle),
        *(retention.build_controller(lifecycle, model) for model in here),
        limits.build_controller(lifecycle),
    ]
    names = ["trainjob", *(model.framework.singular for model in here), *(item.name for item in lasting)]
    return (*chain, *lasting, *(DRAINING if drains else ())), frozenset(names)


class _Run:
    def __init__(self, world: World, base: Base, planted: Planted | None, deeds: Sequence[UserAction] | None) -> None:
        self.world = world
        self._deeds = deeds
        self.checker = Checker(world, base.objects)
        world.ledger = SimLedger(world) if world.wishes.history else None
        if world.ledger is not None:
            self.checker.memory.looks.records = world.ledger.records
            self.checker.memory.looks.moments = world.ledger.moments
        every = [model.gvr for model in TRAINING_KINDS.values()]
        lifecycle = LifecycleContext(world.ledger, unpublished=() if world.wishes.publish else every)
        controllers: Sequence[Controller]
        drains = any(deed.what == "drain" for deed in deeds or ())
        self._began = 0.0
        made = _build_controllers(world.seed, lifecycle, lambda: world.clock.boot() - self._began, drains=drains)
        controllers, world.cluster_controllers = made
        controllers = planted.wrap(controllers) if planted is not None else controllers
        world.controllers = [self.checker.wrap(item) for item in controllers]
        self._late_runtime = base.late_runtime
        self._server = Supervisor(world, "server", self._make_server)
        self._operator = Supervisor(world, "operator", self._make_operator)
        self._tasks: list[asyncio.Task[None]] = []
        self.checker.halt = self._halt
        self.patches = StepInterrupter(world, self._restart).patches

    def _make_server(self) -> Server:
        if self.world.weather.mode == EMBEDDED:
            self._begin_life()
        return Server(self.world, self.checker, self._server.crash)

    def _begin_life(self) -> None:
        self.checker.memory.timers.begin_life()
        self._began = self.world.clock.boot()

    def _make_operator(self) -> Operator:
        self._begin_life()
        return Operator(self.world, self._find_server, self._operator.crash)

    def _find_server(self) -> Server | None:
        life = self._server.life
        return life if isinstance(life, Server) else None

    @property
    def _failed(self) -> bool:
        return bool(self.world.trace.violations)

    async def play(self) -> None:
        try:
            self._begin()
            await self._endure()
            if not self._failed:
                await self._come_to_rest()
            if not self._failed:
                self._check_rest()
            if not self._failed:
                await self._look_again()
        finally:
            await self._end()

    def _begin(self) -> None:
        world = self.world
        self._spawn(self._server.run(), "server.supervisor")
        if world.weather.mode == OPERATOR:
            self._spawn(self._operator.run(), "operator.supervisor")
        users = V1Users(world, RemoteClient(world, self._find_server, "user"), self._late_runtime)
        deeds = self._deeds
        if deeds is None:
            deeds = add_wishes(world.seed, SPAN, draw_deeds(random.Random(f"deeds/{world.seed}"), SPAN))
            deeds = add_v1_deeds(world.seed, SPAN, add_restarts(world.seed, SPAN, deeds))
        self._spawn(users.run(deeds), "users")
        for _ in range(world.weather.server_crashes):
            self._at(world.random.random() * SPAN, self._crash_server)
        for _ in range(world.weather.clock_steps):
            self._at(world.random.random() * SPAN, self._step_clock)

    def _spawn(self, work: object, name: str) -> None:
        self._tasks.append(self.world.loop.create_task(work, name=name))  # type: ignore[arg-type]  # coroutines

    def _at(self, seconds: float, action: object) -> None:
        self.world.loop.call_later(seconds, action)  # type: ignore[arg-type]  # callables

    def _crash_server(self) -> None:
        self.world.trace.note("fault", "the server crashes")
        self._server.crash()

    def _step_clock(self) -> None:
        seconds = self.world.random.choice((-3600.0, -5.0, 5.0, 3600.0))
        self.world.trace.note("fault", f"the wall clock is set by {seconds} s")
        self.world.clock.step_wall(seconds)

    async def _endure(self) -> None:
        for _ in range(int(SPAN)):
            await asyncio.sleep(1.0)
            if self._failed:
                return
        self.world.calm = True
        self.checker.memory.timers.calm_since = self.world.loop.now
        self.world.trace.note("weather", "the faults are over")
        if self.world.weather.drop:
            # A restart lists all objects, and so finds changes whose notices were lost.
            self._restart()

    def _restart(self) -> None:
        """Crashes the process of the controllers."""
        if self.world.weather.mode == OPERATOR:
            self._operator.crash()
        else:
            self._server.crash()

    async def _come_to_rest(self) -> None:
        for _ in range(PATIENCE):
            before = self.checker.writes
            await asyncio.sleep(QUIET)
            if self._failed or self.checker.writes == before:
                return
        self.world.trace.violate("I9", f"still writes after {PATIENCE * QUIET:.0f} s without faults")

    def _check_rest(self) -> None:
        world = self.world
        records = world.ledger.records if world.ledger is not None else None
        processes = world.machine.processes
        rest = Rest(self.checker.shadow, processes, world.disturbed, records, world.wishes.publish)
        for number, check in REST_CHECKS:
            for message in check(rest):
                world.trace.violate(number, message)

    async def _look_again(self) -> None:
        """Restarts all processes, which list all objects: there must be nothing to write (I9, I16)."""
        before = self.checker.writes
        self.world.trace.note("weather", "everybody looks again")
        self._server.crash()
        self._operator.crash()
        await asyncio.sleep(QUIET)
        if self.checker.writes != before:
            self.world.trace.violate("I9", f"{self.checker.writes - before} writes after a restart at rest")

    def _halt(self) -> None:
        for supervisor in (self._server, self._operator):
            supervisor.stop()

    async def _end(self) -> None:
        self._halt()
        left = [*self._tasks, *self.world.late]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
