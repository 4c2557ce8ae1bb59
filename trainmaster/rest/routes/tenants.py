"""Tenants: the caller's own identity, sign-up, and management by administrators (docs/tenants.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request

from trainmaster.rest.context import BackendOf, CallerOf, TrailOf
from trainmaster.rest.logins.logins import Credential
from trainmaster.rest.models.logins import LinkAnswer, LinkRequest
from trainmaster.rest.models.tenants import (
    Me,
    NewTenant,
    NewToken,
    PreparedTenant,
    SignUp,
    TenantAnswer,
    TenantChange,
    Tenants,
    TokenAnswer,
    Use,
)
from trainmaster.rest.services.tenants import read_edge_limits, read_quota

router = APIRouter(prefix="/api/v1", tags=["tenants"])
PUBLIC = ("/api/v1/signup",)

Name = Annotated[str, Path(description="The tenant.", max_length=63)]


@router.get("/me", summary="Who am I, and what do I have?")
async def read_me(caller: CallerOf, backend: BackendOf) -> Me:
    found = [*await read_quota(caller), *read_edge_limits(caller, backend.streams, backend.rates)]
    quota = [Use(resource=name, allowed=allowed, used=used) for name, allowed, used in found]
    return Me(
        user=caller.identity.user,
        tenant=caller.tenant,
        namespace=caller.tenant,
        user_id=caller.user_id,
        administrator=caller.is_administrator,
        read_only=caller.read_only,
        quota=quota,
    )


@router.post("/signup", summary="Become a tenant", status_code=201)
async def sign_up(body: SignUp, backend: BackendOf, trail: TrailOf, request: Request) -> TokenAnswer:
    """Open only where the administrator has set `rest.sign_up`. Needs no token; gives one."""
    address = request.client.host if request.client is not None else ""
    return TokenAnswer.build(await backend.tenants.sign_up(body.name, trail, address, body.invitation))


@router.get("/tenants", summary="All tenants")
async def list_tenants(caller: CallerOf, backend: BackendOf) -> Tenants:
    found = await backend.tenants.open(caller.client).list_all()
    return Tenants(items=[TenantAnswer.build(tenant) for tenant in found])


@router.post("/tenants", summary="Make a tenant", status_code=201)
async def add_tenant(body: NewTenant, caller: CallerOf, backend: BackendOf) -> TokenAnswer:
    issued = await backend.tenants.add(
        caller.client,
        body.name,
        body.allowance.to_allowance(),
        life=timedelta(days=body.token_days),
        without_walls=body.without_walls,
    )
    return TokenAnswer.build(issued)


@router.get("/tenants/{name}", summary="One tenant")
async def read_tenant(name: Name, caller: CallerOf, backend: BackendOf) -> TenantAnswer:
    return TenantAnswer.build(await backend.tenants.open(caller.client).get(name))


@router.patch("/tenants/{name}", summary="Change what a tenant may have")
async def change_tenant(name: Name, body: TenantChange, caller: CallerOf, backend: BackendOf) -> TenantAnswer:
    """Limits hold from the next create on; what a tenant has already stays."""
    return TenantAnswer.build(await backend.tenants.change(caller.client, name, body.to_limits(), body.state))


@router.put("/tenants/{name}", summary="Make a tenant that has no token yet")
async def prepare_tenant(name: Name, body: PreparedTenant, caller: CallerOf, backend: BackendOf) -> TenantAnswer:
    """A login link, or a rotation, lets it in. Can be repeated until it has its first token."""
    made = await backend.tenants.prepare(
        caller.client, name, body.allowance.to_allowance(), without_walls=body.without_walls
    )
    return TenantAnswer.build(made)


@router.post("/tenants/{name}/login-link", summary="A one-time link for a browser of the tenant", status_code=201)
async def make_login_link(
    name: Name, caller: CallerOf, backend: BackendOf, body: LinkRequest | None = None
) -> LinkAnswer:
    """Whoever opens it first, within two minutes, acts as the tenant, for a week at most. Its tokens stay valid;
    rotating or disabling ends such logins too."""
    issued = await backend.tenants.issue_for_login(caller.client, name)
    tenant = await backend.callers.identify(issued.token)
    wanted = body or LinkRequest()
    made = await backend.logins.make_link(Credential(issued.token), tenant, read_only=wanted.read_only)
    return LinkAnswer(link=made.text, expires_at=made.expires)


@router.post("/tenants/{name}/rotate", summary="A new token; the old ones are void")
async def rotate_token(name: Name, body: NewToken, caller: CallerOf, backend: BackendOf) -> TokenAnswer:
    tenants = backend.tenants.open(caller.client)
    return TokenAnswer.build(await tenants.rotate(name, life=timedelta(days=body.token_days)))


@router.post("/tenants/{name}/enable", summary="Let a disabled tenant in again")
async def enable_tenant(name: Name, body: NewToken, caller: CallerOf, backend: BackendOf) -> TokenAnswer:
    tenants = backend.tenants.open(caller.client)
    return TokenAnswer.build(await tenants.enable(name, life=timedelta(days=body.token_days)))


@router.post("/tenants/{name}/disable", summary="Take away tokens and rights; jobs go on")
async def disable_tenant(name: Name, caller: CallerOf, backend: BackendOf) -> TenantAnswer:
    return TenantAnswer.build(await backend.tenants.open(caller.client).disable(name))


@router.delete("/tenants/{name}", summary="Remove a tenant with everything in its namespace")
async def delete_tenant(name: Name, caller: CallerOf, backend: BackendOf) -> TenantAnswer:
    """Records of its jobs stay in the history."""
    return TenantAnswer.build(await backend.tenants.open(caller.client).delete(name))
