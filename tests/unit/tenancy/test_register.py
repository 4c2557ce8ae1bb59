"""Names and Unix users: given once, by one object each, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.unit.tenancy.test_tenants import Crash, Dying
from trainmaster.api import status, tenancy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import FIRST_USER, SYSTEM_NAMESPACE, Allowance
from trainmaster.apiserver.local import LocalClient
from trainmaster.client.contract import Client
from trainmaster.tenancy.errors import TenantError
from trainmaster.tenancy.invitations import Invitations
from trainmaster.tenancy.register import Register
from trainmaster.tenancy.tenants import TenantRegister
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def play(scene: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await scene(cluster)

    run_virtual(main())


async def nothing_left(name: str) -> str:
    return ""


async def records_left(name: str) -> str:
    return "records"


def test_each_tenant_gets_the_next_user_also_when_many_come_at_once() -> None:
    async def scene(cluster: Cluster) -> None:
        register = Register(cluster.client)
        users = await asyncio.gather(*(register.take(f"t{n}", walled=True, fresh=True) for n in range(25)))
        assert sorted(cast(list[int], users)) == list(range(FIRST_USER, FIRST_USER + 25))

    play(scene)


def test_only_one_of_two_strangers_gets_a_name() -> None:
    async def scene(cluster: Cluster) -> None:
        register = Register(cluster.client)
        both = [register.take("ann", walled=True, fresh=True) for _ in range(2)]
        answers = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["TenantError", "int"]

    play(scene)


def test_a_name_is_free_again_when_nothing_is_left_and_its_user_never() -> None:
    async def scene(cluster: Cluster) -> None:
        tenants = TenantRegister(cluster.client, cluster.clock, nothing_left)
        await tenants.add("ann", Allowance(), walled=True, fresh=True)
        with pytest.raises(TenantError, match="is taken"):
            await tenants.add("ann", Allowance(), walled=True, fresh=True)
        await tenants.delete("ann")
        await cluster.registry.settled()
        with pytest.raises(TenantError, match="is taken"):
            await TenantRegister(cluster.client, cluster.clock, records_left).add(
                "ann", Allowance(), walled=True, fresh=True
            )
        with pytest.raises(TenantError, match="is taken"):
            await TenantRegister(cluster.client, cluster.clock).add("ann", Allowance(), walled=True, fresh=True)
        await tenants.add("ann", Allowance(), walled=True, fresh=True)
        assert (await tenants.get("ann")).unix_user == FIRST_USER + 1

    play(scene)


def test_an_administrator_gives_a_deleted_tenant_its_own_user_again() -> None:
    async def scene(cluster: Cluster) -> None:
        tenants = TenantRegister(cluster.client, cluster.clock, nothing_left)
        await tenants.add("ann", Allowance(), walled=True)
        await tenants.delete("ann")
        await cluster.registry.settled()
        await tenants.add("ann", Allowance(), walled=True)
        assert (await tenants.get("ann")).unix_user == FIRST_USER

    play(scene)


def test_a_name_that_was_given_without_walls_is_given_all_the_same() -> None:
    """As on a cluster, where there is no Unix user."""

    async def scene(cluster: Cluster) -> None:
        tenants = TenantRegister(cluster.client, cluster.clock)
        await tenants.add("ann", Allowance(), walled=False, fresh=True)
        await tenants.delete("ann")
        await cluster.registry.settled()
        with pytest.raises(TenantError, match="is taken"):
            await tenants.add("ann", Allowance(), walled=False, fresh=True)

    play(scene)


def test_a_name_whose_namespace_was_refused_is_free_again() -> None:
    """On a cluster the REST API may write ConfigMaps and, without the manifest for sign-up, no namespaces."""

    async def scene(cluster: Cluster) -> None:
        refused = TenantRegister(NoNamespaces(cluster.registry), cluster.clock)
        with pytest.raises(StatusError, match="not yours"):
            await refused.add("ann", Allowance(), walled=False, fresh=True)
        await TenantRegister(cluster.client, cluster.clock).add("ann", Allowance(), walled=False, fresh=True)

    play(scene)


class NoNamespaces(LocalClient):
    async def create(self, gvr: GVR, *arguments: Any, **options: Any) -> Object:
        if gvr == NAMESPACES:
            raise status.forbidden(NAMESPACES, "ann", "not yours")
        return await super().create(gvr, *arguments, **options)


async def write_old_register(client: Client, **entries: int) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": tenancy.REGISTER}}
    data = {name: str(user) for name, user in entries.items()}
    await client.create(CONFIG_MAPS, {**obj, "data": data}, SYSTEM_NAMESPACE)


def test_what_an_earlier_version_gave_stays_given() -> None:
    async def scene(cluster: Cluster) -> None:
        await write_old_register(cluster.client, ann=FIRST_USER, bob=FIRST_USER + 4)
        register = Register(cluster.client, nothing_left)
        assert await register.find_obstacle("ann")
        assert await register.take("bob", walled=True, fresh=False) == FIRST_USER + 4
        assert await register.take("eve", walled=True, fresh=True) == FIRST_USER + 5
        old = await cluster.client.get(CONFIG_MAPS, tenancy.REGISTER, SYSTEM_NAMESPACE)
        assert old["data"] == {"ann": str(FIRST_USER), "bob": str(FIRST_USER + 4)}
        assert await register.carry_over() == 0

    play(scene)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 12))
def test_a_crash_at_any_write_loses_nobody_and_gives_nothing_twice(at: int, after: bool) -> None:
    async def scene(cluster: Cluster) -> None:
        await write_old_register(cluster.client, ann=FIRST_USER, bob=FIRST_USER + 1)
        dying: Any = Dying(cluster.client, at, after=after)
        with contextlib.suppress(Crash):
            await Register(dying, nothing_left).take("eve", walled=True, fresh=True)
        register = Register(cluster.client, nothing_left)
        users = [await register.take(name, walled=True, fresh=False) for name in ("ann", "bob", "eve", "joe")]
        assert users[:2] == [FIRST_USER, FIRST_USER + 1]
        assert len(set(users)) == 4

    play(scene)


def test_an_invitation_is_good_for_as_many_as_it_says() -> None:
    async def scene(cluster: Cluster) -> None:
        invitations = Invitations(cluster.client, cluster.clock)
        await invitations.invite("secret code", Allowance(jobs=7), uses=2)
        stored = [record.value for record in cluster.store.scan("configmaps")]
        assert not any(b"secret code" in value for value in stored)
        uses = [invitations.use("secret code") for _ in range(4)]
        answers = await asyncio.gather(*uses, return_exceptions=True)
        good = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert [allowance.jobs for allowance, _ in good] == [7, 7]
        assert all("used up" in str(answer) for answer in answers if isinstance(answer, BaseException))
        await good[0][1]()
        assert (await invitations.use("secret code"))[0].jobs == 7
        with pytest.raises(TenantError):
            await invitations.use("secret code")

    play(scene)


def test_an_invitation_ends_when_it_says_and_can_be_withdrawn() -> None:
    async def scene(cluster: Cluster) -> None:
        invitations = Invitations(cluster.client, cluster.clock)
        await invitations.invite("one", Allowance())
        await cluster.clock.sleep(7 * 86400 + 1)
        with pytest.raises(TenantError, match="expired"):
            await invitations.use("one")
        made = await invitations.invite("two", Allowance(), uses=5)
        assert [one.id for one in await invitations.list_all()] == [made.id]
        await invitations.withdraw(made.id)
        with pytest.raises(TenantError, match="unknown"):
            await invitations.use("two")

    play(scene)


def test_a_changed_allowance_changes_the_quota_and_the_defaults() -> None:
    async def scene(cluster: Cluster) -> None:
        tenants = TenantRegister(cluster.client, cluster.clock)
        await tenants.add("ann", Allowance(memory="1Gi"), walled=True)
        changed = await tenants.change("ann", {"memory": "256Mi", "cpu": "2", "pods": 7})
        shown = {budget.name: budget.allowed for budget in changed.budgets}
        assert (shown["memory"], shown["cpu"], shown["pods"]) == ("256Mi", "2", "7")
        lifted = await tenants.change("ann", {"memory": None, "cpu": None})
        assert {"memory", "cpu"} & {budget.name for budget in lifted.budgets} == set()
        with pytest.raises(TenantError, match="there is no tenant bob"):
            await tenants.change("bob", {"pods": 7})
        assert (await cluster.client.get(NAMESPACES, "ann"))["metadata"]["name"] == "ann"

    play(scene)
