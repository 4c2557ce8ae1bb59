"""When warm zygotes are prepared before the first Pod, and when they are given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from trainmaster.kit.scopes import Scope
from trainmaster.node.images.contract import Environment, ImageError
from trainmaster.node.shims.idle import Idleness, IdlePreparation
from trainmaster.node.shims.learned import WarmUse
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.node.shims.warm import WarmZygote
from trainmaster.node.shims.warm_starts import WarmStarts
from trainmaster.node.shims.zygotes import WarmReport
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

GIB = 1 << 30
OWN, TEAM, GONE, BARE = WarmUse("default", ""), WarmUse("team", "/env"), WarmUse("a", "/gone"), WarmUse("b", "/bare")


class Machine:
    """A machine of four cores and 16 GiB, and the zygotes on it."""

    def __init__(self, *expected: WarmUse) -> None:
        self.zygotes = self
        self.expected = list(expected)
        self.cores_used = 0.0
        self.free = 8 * GIB
        self.is_stopped = False
        self.broken: set[str] = set()
        """Those that will fail."""
        self.failed: set[str] = set()
        self.known: dict[str, WarmZygote] = {}
        self.asked: list[str] = []
        self.clock = VirtualClock()
        idleness = Idleness(4, 16 * GIB, lambda: int(self.cores_used * self.clock.monotonic() * 1e9), lambda: self.free)
        starts, supervisor = cast("WarmStarts", self), cast("Supervisor", self)
        self.idle = IdlePreparation(starts, supervisor, self.get_environment, idleness, self.clock)

    def list_expected(self) -> list[WarmUse]:
        return self.expected

    def get_environment(self, prefix: str) -> Environment:
        if prefix == GONE.prefix:
            raise ImageError("/gone is not a Python environment")
        return Environment(prefix or "/server", layer="/layer")

    def find_zygote(self, use: WarmUse, image: Environment) -> WarmZygote | None:
        if use == BARE:
            return None
        has_failed = f"{use.namespace}+" in self.failed
        key, learned = (use.namespace, "") if has_failed or not use.teaches else (f"{use.namespace}+", "learned")
        return WarmZygote(key, image.layer, ("torch",), image.prefix, use.namespace, learned)

    async def ensure_warm(self, zygote: WarmZygote, *, is_idle: bool) -> None:
        assert is_idle
        await self.clock.sleep(3)
        self.asked.append(zygote.key)
        if zygote.key in self.broken:
            self.failed.add(zygote.key)
        if not self.is_stopped:
            self.known[zygote.key] = zygote

    def needs_warm(self, zygote: WarmZygote) -> bool:
        return zygote.key not in self.known

    def has_failed(self, zygote: WarmZygote) -> bool:
        return zygote.key in self.failed

    def has_room(self) -> bool:
        return len(self.known) - len(self.failed) < 2

    def drop_all_warm(self) -> None:
        self.known.clear()

    def describe_warm(self) -> list[WarmReport]:
        return [WarmReport(zygote.namespace, zygote.label, "prepared", True) for zygote in self.known.values()]

    def describe(self) -> list[str]:
        return [f"{report.environment}: {report.state}" for report in self.idle.describe()]


def run(machine: Machine, test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Scope("test") as scope:
            scope.spawn_forever(machine.idle.work(), name="idle")
            await test()
            scope.cancel()

    run_virtual(main())


def test_what_is_most_likely_comes_first_and_only_once_the_machine_is_idle() -> None:
    machine = Machine(TEAM, OWN)
    machine.cores_used = 1.1

    async def test() -> None:
        await asyncio.sleep(60)
        assert machine.asked == []
        waits = "not prepared: it waits until the machine is idle"
        assert machine.describe() == [f"/env: {waits}", f"the server's environment: {waits}"]
        machine.cores_used = 0.0
        await asyncio.sleep(60)
        assert machine.asked == ["team", "default"]
        assert machine.describe() == ["/env: prepared", "/server: prepared"]

    run(machine, test)


def test_the_start_of_the_server_is_left_alone() -> None:
    machine = Machine(OWN)

    async def test() -> None:
        await asyncio.sleep(2.9)
        assert machine.asked == []
        await asyncio.sleep(10)
        assert machine.asked == ["default"]

    run(machine, test)


def test_one_that_a_pod_has_stopped_is_tried_again() -> None:
    machine = Machine(OWN)
    machine.is_stopped = True

    async def test() -> None:
        await asyncio.sleep(8)
        assert machine.asked == ["default"] and not machine.known
        machine.is_stopped = False
        await asyncio.sleep(8)
        assert machine.known

    run(machine, test)


def test_what_cannot_be_prepared_says_why_and_is_not_tried_again() -> None:
    machine = Machine(GONE, BARE, OWN, TEAM, WarmUse("more", "/more"))

    async def test() -> None:
        await asyncio.sleep(600)
        assert machine.asked == ["default", "team"]
        assert machine.describe()[2:] == [
            "/gone: not prepared: /gone is not a Python environment",
            "/bare: not prepared: it has no torch",
            "/more: not prepared: there is not enough memory for it",
        ]

    run(machine, test)


def test_if_what_was_learned_fails_the_rest_is_prepared_and_if_that_fails_too_nothing_is() -> None:
    machine = Machine(WarmUse("default", "/env", teaches=True), WarmUse("team", "/other", teaches=True))
    machine.broken = {"default+", "team+", "team"}

    async def test() -> None:
        await asyncio.sleep(600)
        assert machine.asked == ["default+", "default", "team+", "team"]

    run(machine, test)


def test_memory_is_given_back_and_not_used_while_it_is_short() -> None:
    machine = Machine(OWN, TEAM)
    machine.free = GIB // 2

    async def test() -> None:
        await asyncio.sleep(60)
        assert machine.asked == []
        assert machine.describe()[0] == "the server's environment: not prepared: the machine is short of memory"
        machine.free = 8 * GIB
        await asyncio.sleep(60)
        assert len(machine.known) == 2
        machine.free = GIB // 2
        await asyncio.sleep(10)
        assert not machine.known

    run(machine, test)
