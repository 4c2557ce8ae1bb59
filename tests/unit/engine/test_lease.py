"""The leader's lease: one at a time, taken over only after silence by the local clock, given back at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.api.resources import LEASES
from trainmaster.client.contract import Client
from trainmaster.engine.lease import Lease, LeaseExpired, LeaseLost, LeaseSettings, LeaseTimes
from trainmaster.kit.ids import SeededIds
from trainmaster.kit.scopes import Scope
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


class Breakable:
    """A client whose server can be made unreachable."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        if self.broken and name in ("get", "create", "update"):
            raise status.unavailable("down")
        return getattr(self._client, name)


class Candidate:
    def __init__(self, name: str, client: Client, clock: VirtualClock, seed: int) -> None:
        self.client = Breakable(client)
        self.leads = False
        self.lost_at: float | None = None
        self._clock = clock
        settings = LeaseSettings("default", "operator", name)
        self._lease = Lease(self.client, settings, clock=clock, ids=SeededIds(seed))

    async def run(self) -> None:
        try:
            async with self._lease.held():
                self.leads = True
                await asyncio.get_running_loop().create_future()
        except LeaseLost:
            self.lost_at = self._clock.monotonic()
        finally:
            self.leads = False


def play(test: Callable[[Scope, Client, Candidate, Candidate], Awaitable[None]], *, skew: float = 0) -> None:
    async def main() -> None:
        clock = VirtualClock()
        other = VirtualClock()
        other.step_wall(skew)
        async with running_cluster(clock=clock) as cluster, Scope("test") as scope:
            first = Candidate("first", cluster.client, clock, 1)
            second = Candidate("second", cluster.client, other, 2)
            await test(scope, cluster.client, first, second)

    run_virtual(main())


async def read(client: Client) -> Object:
    spec: Object = (await client.get(LEASES, "operator", "default"))["spec"]
    return spec


def test_only_one_of_two_leads_and_it_goes_on_renewing() -> None:
    async def test(scope: Scope, client: Client, first: Candidate, second: Candidate) -> None:
        scope.spawn(first.run(), name="first")
        await asyncio.sleep(1)
        scope.spawn(second.run(), name="second")
        await asyncio.sleep(3600)
        assert (first.leads, second.leads) == (True, False)
        spec = await read(client)
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("first", 0)
        assert spec["acquireTime"] < spec["renewTime"]

    play(test)


def test_a_leader_that_ends_gives_the_lease_back() -> None:
    async def test(scope: Scope, client: Client, first: Candidate, second: Candidate) -> None:
        task = scope.spawn(first.run(), name="first")
        await asyncio.sleep(1)
        scope.spawn(second.run(), name="second")
        await asyncio.sleep(20)
        task.cancel()
        await asyncio.sleep(3)
        assert (first.leads, second.leads) == (False, True)
        spec = await read(client)
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)

    play(test)


@pytest.mark.parametrize("skew", [0, 3600, -3600])
def test_a_leader_that_cannot_renew_stops_before_another_starts(skew: float) -> None:
    async def test(scope: Scope, client: Client, first: Candidate, second: Candidate) -> None:
        scope.spawn(first.run(), name="first")
        await asyncio.sleep(1)
        scope.spawn(second.run(), name="second")
        await asyncio.sleep(60)
        first.client.broken = True
        began = asyncio.get_running_loop().time()
        while not second.leads:
            assert first.leads or first.lost_at is not None
            await asyncio.sleep(0.1)
        assert not first.leads and first.lost_at is not None
        assert first.lost_at < asyncio.get_running_loop().time() <= began + 20

    play(test, skew=skew)


def test_a_leader_whose_lease_was_taken_by_hand_stops() -> None:
    async def test(scope: Scope, client: Client, first: Candidate, second: Candidate) -> None:
        scope.spawn(first.run(), name="first")
        await asyncio.sleep(1)
        lease = await client.get(LEASES, "operator", "default")
        lease["spec"]["holderIdentity"] = "somebody"
        await client.update(LEASES, lease, "default")
        await asyncio.sleep(3)
        assert not first.leads and first.lost_at is not None
        assert (await read(client))["holderIdentity"] == "somebody"

    play(test)


def test_a_short_outage_is_survived() -> None:
    async def test(scope: Scope, client: Client, first: Candidate, second: Candidate) -> None:
        scope.spawn(first.run(), name="first")
        await asyncio.sleep(1)
        first.client.broken = True
        await asyncio.sleep(7)
        first.client.broken = False
        await asyncio.sleep(60)
        assert first.leads and first.lost_at is None

    play(test)


def test_times_that_would_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="deadline"):
        LeaseTimes(duration=15, deadline=12.0, period=2.0)


class Stopped(VirtualClock):
    """Of a process that can stand still: its own time does not pass then, and that of the machine does."""

    stood = 0.0

    def boot(self) -> float:
        return super().boot() + self.stood


def test_a_process_that_stood_still_may_write_nothing_until_it_has_renewed() -> None:
    async def main() -> None:
        clock = Stopped()
        async with running_cluster(clock=clock) as cluster:
            settings = LeaseSettings("default", "operator", "first")
            lease = Lease(cluster.client, settings, clock=clock, ids=SeededIds(1))
            refuse_writes(lease)
            async with lease.held():
                lease.check()
                lease.check_reports()
                await asyncio.sleep(60)
                lease.check()
                clock.stood = 7.0
                lease.check()
                clock.stood = 30.0
                refuse_writes(lease)
                await asyncio.sleep(3)
                lease.check()
            with pytest.raises(LeaseExpired):
                lease.check()
            # What was done as the leader may still be told.
            lease.check_reports()

    run_virtual(main())


def refuse_writes(lease: Lease) -> None:
    for check in (lease.check, lease.check_reports):
        with pytest.raises(LeaseExpired, match="the lease operator is not held any more"):
            check()


def test_a_leader_that_could_not_give_its_lease_back_tells_nothing_more() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            client = Breakable(cluster.client)
            settings = LeaseSettings("default", "operator", "first")
            lease = Lease(client, settings, clock=cluster.clock, ids=SeededIds(1))
            async with lease.held():
                client.broken = True
            refuse_writes(lease)

    run_virtual(main())
