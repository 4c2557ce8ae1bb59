"""Tenants: what one is made of, what its tokens are worth, and that no crash leaves anything half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from trainmaster.api import tenancy
from trainmaster.api.resources import NAMESPACES, RESOURCE_QUOTAS, ROLE_BINDINGS, SECRETS, SERVICE_ACCOUNTS
from trainmaster.api.status import NotFound
from trainmaster.api.tenancy import Allowance
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.apiserver.stored_policies import StorePolicies
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.client.contract import Client
from trainmaster.tenancy.errors import TenantError
from trainmaster.tenancy.tenants import TenantRegister, check_walls
from trainmaster.testing.cluster import SIGNING_SECRET, Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

SOME = Allowance(jobs=5, cpu="4", gpus=1)


class Crash(Exception):
    """The process died here."""


class Dying:
    """A `Client` whose process dies at its n-th write: before it, or just after it was stored."""

    def __init__(self, inner: Any, at: int, *, after: bool) -> None:
        self._inner = inner
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in ("create", "update", "patch", "delete"):
            return method

        async def write(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crash
            answer = await method(*arguments, **named)
            if self._left == 0:
                raise Crash
            return answer

        return write


def dying(cluster: Cluster, at: int, *, after: bool) -> TenantRegister:
    return TenantRegister(cast(Client, Dying(cluster.client, at, after=after)), cluster.clock)


def play(scene: Callable[[Cluster, TenantRegister], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await scene(cluster, TenantRegister(cluster.client, cluster.clock))

    run_virtual(main())


def is_good(cluster: Cluster, token: str) -> bool:
    accounts = ServiceAccountTokens(SIGNING_SECRET, StorePolicies(cluster.store), clock=cluster.clock, ids=cluster.ids)
    return accounts.find(token) is not None


def test_a_tenant_gets_a_namespace_a_quota_and_a_token_that_is_stored_nowhere() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        issued = await tenants.add("ann", SOME, walled=True)
        assert is_good(cluster, issued.token)
        quota = await cluster.client.get(RESOURCE_QUOTAS, tenancy.NAME, "ann")
        assert quota["spec"]["hard"] == {
            "count/trainjobs.trainer.kubeflow.org": "5",
            **{f"count/{framework.plural}.kubeflow.org": "5" for framework in FRAMEWORKS},
            "requests.cpu": "4",
            "limits.cpu": "4",
            "requests.nvidia.com/gpu": "1",
            "pods": "200",
            "trainmaster.dev/pids": "4096",
            "trainmaster.dev/object-bytes": "64Mi",
            "count/events": "2k",
            **dict.fromkeys(tenancy.OBJECT_KEYS, "1k"),
        }
        found = await tenants.get("ann")
        assert (found.state, found.unix_user, found.tokens) == ("Active", tenancy.FIRST_USER, (issued.expires,))
        for record in cluster.store.scan("secrets"):
            assert issued.token.encode() not in record.value

    play(scene)


def test_a_second_tenant_of_that_name_is_refused_and_the_first_keeps_its_token() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        issued = await tenants.add("ann", SOME, walled=False)
        with pytest.raises(TenantError, match="exists already; `trainmaster tenant rotate ann`"):
            await tenants.add("ann", SOME, walled=False)
        assert is_good(cluster, issued.token)

    play(scene)


@pytest.mark.parametrize("name", ["Ann", "a_b", "-a", "a" * 41, "", "default", "kube-system", "kubeflow-x", "a.b"])
def test_a_name_that_cannot_be_a_namespace_is_refused_before_anything_is_written(name: str) -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        before = cluster.store.revision
        with pytest.raises(TenantError):
            await tenants.add(name, SOME, walled=True)
        assert cluster.store.revision == before

    play(scene)


def test_a_namespace_that_is_somebody_elses_is_not_taken_over() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        with pytest.raises(TenantError, match="belongs to no tenant"):
            await tenants.add("team", SOME, walled=True)
        with pytest.raises(NotFound):
            await cluster.client.get(SERVICE_ACCOUNTS, tenancy.NAME, "team")

    play(scene)


def test_tenants_added_at_the_same_time_never_share_a_user_id() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        names = [f"t{number}" for number in range(8)]
        await asyncio.gather(*(tenants.add(name, SOME, walled=True) for name in names))
        users = [tenant.unix_user for tenant in await tenants.list_all()]
        assert sorted(user for user in users if user is not None) == [tenancy.FIRST_USER + n for n in range(8)]

    play(scene)


def test_a_new_token_voids_the_old_one_and_one_that_was_made_beside_it() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        first = await tenants.add("ann", SOME, walled=False)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = await cluster.client.create(SERVICE_ACCOUNTS, request, "ann", subresource="token", name=tenancy.NAME)
        second = await tenants.rotate("ann")
        assert is_good(cluster, second.token)
        assert not is_good(cluster, first.token)
        assert not is_good(cluster, made["status"]["token"])
        assert len((await cluster.client.list(SECRETS, "ann")).items) == 1

    play(scene)


def test_a_disabled_tenant_has_no_token_and_no_right_until_it_is_enabled() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        issued = await tenants.add("ann", SOME, walled=False)
        assert (await tenants.disable("ann")).state == "Disabled"
        assert not is_good(cluster, issued.token)
        with pytest.raises(NotFound):
            await cluster.client.get(ROLE_BINDINGS, tenancy.NAME, "ann")
        with pytest.raises(TenantError, match="disabled; `trainmaster tenant enable ann`"):
            await tenants.rotate("ann")
        again = await tenants.enable("ann")
        assert is_good(cluster, again.token)
        assert (await tenants.get("ann")).state == "Active"

    play(scene)


def test_a_deleted_tenants_user_id_is_given_to_nobody_else() -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        issued = await tenants.add("ann", SOME, walled=True)
        await tenants.delete("ann")
        await cluster.settle()
        assert not is_good(cluster, issued.token)
        with pytest.raises(TenantError, match="no tenant ann"):
            await tenants.get("ann")
        await tenants.add("bob", SOME, walled=True)
        assert (await tenants.get("bob")).unix_user == tenancy.FIRST_USER + 1
        await tenants.add("ann", SOME, walled=True)
        assert (await tenants.get("ann")).unix_user == tenancy.FIRST_USER

    play(scene)


@pytest.mark.parametrize("life", [timedelta(minutes=9), timedelta(days=366)])
def test_a_token_that_lives_too_short_or_too_long_is_refused(life: timedelta) -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        before = cluster.store.revision
        with pytest.raises(TenantError, match="at least 10 minutes and at most 365 days"):
            await tenants.add("ann", SOME, walled=False, life=life)
        assert cluster.store.revision == before

    play(scene)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_adding_goes_on_after_a_crash_at_any_write(after: bool) -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        crashes = 0
        for at in range(1, 20):
            name = f"t{at}"
            try:
                await dying(cluster, at, after=after).add(name, SOME, walled=True)
                continue
            except Crash:
                crashes += 1
            try:
                issued = await tenants.add(name, SOME, walled=True)
            except TenantError:
                issued = await tenants.rotate(name)
            assert is_good(cluster, issued.token)
            assert (await tenants.get(name)).tokens == (issued.expires,)
        assert 7 <= crashes < 19, "every write was met, and the last rounds met none"

    play(scene)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_no_token_survives_a_disable_that_is_repeated_after_a_crash(after: bool) -> None:
    async def scene(cluster: Cluster, tenants: TenantRegister) -> None:
        crashes = 0
        for at in range(1, 10):
            name = f"t{at}"
            issued = await tenants.add(name, SOME, walled=False)
            try:
                await dying(cluster, at, after=after).disable(name)
            except Crash:
                crashes += 1
                await tenants.disable(name)
            assert not is_good(cluster, issued.token)
            assert (await tenants.get(name)).tokens == ()
        assert 4 <= crashes < 9

    play(scene)


def test_a_machine_that_cannot_keep_tenants_apart_is_said_and_a_cluster_is_trusted() -> None:
    plain = {"metadata": {"name": "local", "annotations": {"trainmaster.dev/isolation": "plain"}}}
    full = {"metadata": {"name": "local", "annotations": {"trainmaster.dev/isolation": "full"}}}
    assert "--without-walls" in check_walls([plain])
    assert check_walls([full]) == ""
    assert check_walls([{"metadata": {"name": "worker-1"}}]) == ""
