"""Usage is measured when it is asked for: two readings the first time, one afterwards."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trainmaster.api.meta import Object
from trainmaster.node.host.hardware import read_hardware
from trainmaster.node.host.meter import NodeMeter, read_machine_cpu
from trainmaster.node.shims.link import ShimGone
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

MILLI = 1_000_000


class FakeSupervisor:
    """A Pod that uses 0.25 cores."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.extra: dict[str, Any] = {}

    async def request(self, uid: str, op: str) -> tuple[dict[str, Any], list[int]]:
        assert op == "stats"
        self.asked.append(uid)
        if uid == "gone":
            raise ShimGone("the Pod has no shim")
        return {"cpu_ns": int(self.clock.monotonic() * 250 * MILLI), "rss_bytes": 1000, "pids": 1, **self.extra}, []


def pod(uid: str, *containers: str) -> Object:
    states = [{"name": name, "state": {"running": {}}} for name in containers]
    spec = {"containers": [{"name": name} for name in containers]}
    return {"metadata": {"uid": uid}, "spec": spec, "status": {"containerStatuses": states}}


def build(clock: VirtualClock) -> tuple[FakeSupervisor, NodeMeter[tuple[int, int, float]]]:
    supervisor = FakeSupervisor(clock)
    meter = NodeMeter(
        cast(Supervisor, supervisor), clock, lambda *values: values, hardware=read_hardware(), read_health=_no_health
    )
    return supervisor, meter


def _no_health() -> Any:
    raise AssertionError("not asked for")


def test_the_first_question_takes_two_readings_and_the_next_one() -> None:
    async def check() -> None:
        clock = VirtualClock()
        supervisor, meter = build(clock)
        first = await meter.measure_pods([pod("u", "main")])
        cpu, memory, seconds = first["u"]["main"]
        assert (cpu // MILLI, memory) == (250, 1000) and seconds == pytest.approx(0.25)
        assert supervisor.asked == ["u", "u"]
        await clock.sleep(10)
        _, _, seconds = (await meter.measure_pods([pod("u", "main")]))["u"]["main"]
        assert seconds == pytest.approx(10) and supervisor.asked == ["u"] * 3
        await clock.sleep(100)
        _, _, seconds = (await meter.measure_pods([pod("u", "main")]))["u"]["main"]
        assert seconds == pytest.approx(0.25)

    run_virtual(check())


def test_a_pod_without_a_shim_is_left_out() -> None:
    async def check() -> None:
        _, meter = build(VirtualClock())
        assert list(await meter.measure_pods([pod("gone", "main"), pod("u", "main")])) == ["u"]
        assert await meter.measure_pods([]) == {}

    run_virtual(check())


def test_containers_get_their_share_and_ended_processes_no_negative_one() -> None:
    async def check() -> None:
        clock = VirtualClock()
        supervisor, meter = build(clock)
        part = {"cpu_ns": 0, "rss_bytes": 5}
        supervisor.extra = {"containers": {"a": {"cpu_ns": 10**12, "rss_bytes": 7}, "b": part, "ended": part}}
        await meter.measure_pods([pod("u", "a", "b")])
        supervisor.extra = {"containers": {"a": {"cpu_ns": 1, "rss_bytes": 7}, "b": part}}
        await clock.sleep(1)
        found = (await meter.measure_pods([pod("u", "a", "b")]))["u"]
        assert {name: usage[:2] for name, usage in found.items()} == {"a": (0, 7), "b": (0, 5)}

    run_virtual(check())


def test_the_machine_has_used_some_time() -> None:
    assert 0 < read_machine_cpu() <= read_machine_cpu()
