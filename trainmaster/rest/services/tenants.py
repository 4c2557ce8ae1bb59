"""Tenants through REST: administrators create them as themselves; sign-up, if open, as the REST API itself.

The API server authorizes the caller's own client. No role is checked by name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from trainmaster.api.reading import read_fields
from trainmaster.api.resources import NODES, RESOURCE_QUOTAS
from trainmaster.api.tenancy import NAME, Allowance, Tenant
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock
from trainmaster.rest.audit_trail import Trail
from trainmaster.rest.callers import Caller, Latest, SeenClient, always_durable
from trainmaster.rest.logins.state import LONGEST_SECONDS
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.rates import Rates
from trainmaster.rest.services.sign_up import SignUpGuard, SignUpRules
from trainmaster.rest.services.streams import Streams
from trainmaster.tenancy.errors import TenantError
from trainmaster.tenancy.invitations import Invitations
from trainmaster.tenancy.register import FindLeftovers
from trainmaster.tenancy.tenants import DEFAULT_LIFE, Issued, TenantRegister, check_walls


class TenantService:
    """`own` acts as the REST API itself, for sign-up only. `on_cluster`: containers provide the isolation."""

    def __init__(
        self,
        own: Client,
        clock: Clock,
        *,
        sign_up: SignUpRules,
        on_cluster: bool,
        latest: Latest = always_durable,
        remains: FindLeftovers | None = None,
    ) -> None:
        self._own = own
        self._latest = latest
        self._clock = clock
        self._on_cluster = on_cluster
        self._door = SignUpGuard(sign_up, clock)
        self._remains = remains

    def open(self, client: Client) -> TenantRegister:
        return TenantRegister(client, self._clock, self._remains)

    async def add(
        self,
        client: Client,
        name: str,
        allowance: Allowance,
        *,
        life: timedelta,
        without_walls: bool,
        fresh: bool = False,
    ) -> Issued:
        walled = await self._decide_walls(client, without_walls)
        return await self.open(client).add(name, allowance, walled=walled, life=life, fresh=fresh)

    async def prepare(self, client: Client, name: str, allowance: Allowance, *, without_walls: bool) -> Tenant:
        """One without a token; a login link or `rotate` lets it in."""
        walled = await self._decide_walls(client, without_walls)
        return await self.open(client).prepare(name, allowance, walled=walled)

    async def _decide_walls(self, client: Client, without_walls: bool) -> bool:
        if without_walls or self._on_cluster:
            return False
        problem = check_walls((await client.list(NODES)).items)
        if problem:
            hint = "send without_walls: true to accept it, or run the server as root"
            raise Problem(409, "no-walls", problem, hint=hint)
        return True

    async def change(
        self,
        client: Client,
        name: str,
        limits: Mapping[str, str | int | None],
        state: Literal["Active", "Disabled"] | None,
    ) -> Tenant:
        tenants = self.open(client)
        if limits:
            await tenants.change(name, limits)
        if state == "Active":
            return await tenants.readmit(name)
        return await (tenants.get(name) if state is None else tenants.disable(name))

    async def issue_for_login(self, client: Client, name: str) -> Issued:
        """A token for a login link: it lives as long as a login may, beside those that the tenant has."""
        return await self.open(client).add_token(name, life=timedelta(seconds=LONGEST_SECONDS))

    async def sign_up(self, name: str, trail: Trail, address: str, invitation: str = "") -> Issued:
        self._door.check_attempt(address, invitation)
        # There is no caller, so the edge neither waits for durability nor knows what was written.
        client = SeenClient(self._own, self._latest, trail)
        try:
            issued = await self._add_tenant(client, name, invitation)
        except (TenantError, Problem) as error:
            raise _drop_advice(error, name) from None
        await client.settle()
        return issued

    async def _add_tenant(self, client: Client, name: str, invitation: str) -> Issued:
        if not invitation:
            await self._door.check_capacity(name, self.open(client).register)
            return await self._add_uninvited(client, name, self._door.rules.allowance)
        allowance, give_back = await Invitations(client, self._clock).use(invitation)
        try:
            return await self._add_uninvited(client, name, allowance)
        except (TenantError, Problem):
            await give_back()
            raise

    async def _add_uninvited(self, client: Client, name: str, allowance: Allowance) -> Issued:
        return await self.add(client, name, allowance, life=DEFAULT_LIFE, without_walls=False, fresh=True)


def _drop_advice(error: TenantError | Problem, name: str) -> Problem:
    """Replaces advice for administrators, which somebody who signs up cannot follow."""
    if isinstance(error, TenantError):
        if error.kind != "exists":
            return to_problem(error)
        hint = "choose another one; if it is you, an administrator gives you a new token"
        return Problem(409, "tenant-exists", f"the name {name} is taken", hint=hint)
    if error.kind == "no-walls":
        hint = f"ask an administrator for `trainmaster tenant add {name} --without-walls`"
        return Problem(409, "no-walls", error.detail, hint=hint)
    return error


async def read_quota(caller: Caller) -> list[tuple[str, str, str]]:
    """(resource, allowed, used) of the caller's own namespace."""
    if caller.tenant is None:
        return []
    quota = await caller.client.get(RESOURCE_QUOTAS, NAME, caller.tenant)
    hard = read_fields(quota, "status", "hard") or quota["spec"]["hard"]
    used = read_fields(quota, "status", "used")
    return [(name, str(amount), str(used.get(name, "0"))) for name, amount in hard.items()]


def read_edge_limits(caller: Caller, streams: Streams, rates: Rates) -> list[tuple[str, str, str]]:
    """(resource, allowed, used) of the REST API's own limits; empty for callers without limits."""
    if caller.is_administrator:
        return []
    who = caller.identity.user
    open_now, most = streams.measure(who)
    found = [("trainmaster.dev/streams", str(most), str(open_now))]
    rate = rates.measure(who)
    if rate is not None:
        found.append(("trainmaster.dev/request-burst", str(rate[1]), str(rate[0])))
    return found


def to_problem(error: TenantError) -> Problem:
    if error.kind == "invalid":
        return invalid([FieldProblem(str(error), pointer="/name")])
    if error.kind == "missing":
        return Problem(404, "not-found", str(error))
    return Problem(409, "tenant-exists" if error.kind == "exists" else "tenant-refused", str(error))
