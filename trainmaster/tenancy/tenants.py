"""Adding, listing, disabling and deleting tenants, and their tokens.

A token is a ServiceAccount's, asked for with TokenRequest and bound to a Secret. It is shown once and stored nowhere;
deleting the Secret revokes it at once, deleting the ServiceAccount revokes all. Every step can be repeated: after a
crash between any two writes the same command goes on where it stopped, and nobody holds a token that was not revoked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from trainmaster.api import tenancy
from trainmaster.api.labels import ISOLATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, LIMIT_RANGES, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound
from trainmaster.api.tenancy import NAME, RESOURCE_QUOTAS, ROLE_BINDINGS, Allowance, Tenant
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.kit.clock import Clock, format_time

DEFAULT_LIFE = timedelta(days=90)
SHORTEST_LIFE, LONGEST_LIFE = timedelta(minutes=10), timedelta(days=365)
_TRIES = 20
"""Of finding a free user id while others are added at the same time."""
_FIRST_TOKEN = f"{NAME}-token-1"


class TenantError(Exception):
    """What cannot be done, and what to do instead; for people. `kind` is for programs."""

    def __init__(self, text: str, kind: Literal["invalid", "exists", "missing", "refused"] = "refused") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Issued:
    tenant: str
    namespace: str
    token: str
    expires: str


class Tenants:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def add(
        self, name: str, allowance: Allowance, *, walled: bool, life: timedelta = DEFAULT_LIFE, fresh: bool = False
    ) -> Issued:
        """`walled`: its Pods run as a Unix user of its own; one machine only, and the node must be able to. `fresh`:
        somebody whom nobody knows asks, so a name that was ever given is taken, whatever is left of its tenant."""
        problem = tenancy.find_name_problem(name)
        if problem:
            raise TenantError(problem, "invalid")
        _check_life(life)
        user = await self._reserve_user(name, fresh) if walled else None
        await self._make_namespace(name, user, fresh)
        await self._furnish(name, allowance)
        try:
            return await self._issue(name, _FIRST_TOKEN, life)
        except AlreadyExists:
            raise _build_exists(name) from None

    async def list_all(self) -> list[Tenant]:
        namespaces = await self._client.list(NAMESPACES, options=ListOptions(label_selector=tenancy.TENANT))
        return [await self._read(namespace) for namespace in namespaces.items]

    async def get(self, name: str) -> Tenant:
        return await self._read(await self._find_namespace(name))

    async def rotate(self, name: str, *, life: timedelta = DEFAULT_LIFE) -> Issued:
        """A new token; every earlier one is void before the new one exists."""
        _check_life(life)
        tenant = await self.get(name)
        if tenant.disabled:
            raise TenantError(f"tenant {name} is disabled; `trainmaster tenant enable {name}` gives it a token again")
        return await self._renew(name, life)

    async def enable(self, name: str, *, life: timedelta = DEFAULT_LIFE) -> Issued:
        _check_life(life)
        await self._find_namespace(name)
        await self._ensure(ROLE_BINDINGS, tenancy.build_role_binding(name), name)
        issued = await self._renew(name, life)
        await self._annotate(name, None)
        return issued

    async def disable(self, name: str) -> Tenant:
        """No right and no token is left when this returns. Jobs go on; delete or suspend them where that is wanted."""
        await self._find_namespace(name)
        await self._annotate(name, format_time(self._clock.now()))
        await self._remove(ROLE_BINDINGS, NAME, name)
        await self._revoke(name)
        return await self.get(name)

    async def delete(self, name: str) -> Tenant:
        """With everything in the namespace. The Unix user stays reserved, and history keeps its records."""
        tenant = await self.disable(name)
        await self._client.delete(NAMESPACES, name)
        return tenant

    # Steps. Each may be repeated.

    async def _make_namespace(self, name: str, user: int | None, fresh: bool) -> None:
        try:
            await self._client.create(NAMESPACES, tenancy.build_namespace(name, user))
        except AlreadyExists:
            if fresh:
                raise _build_taken(name) from None
            found = await self._client.get(NAMESPACES, name)
            if (found["metadata"].get("labels") or {}).get(tenancy.TENANT) != name:
                raise TenantError(
                    f"namespace {name} exists and belongs to no tenant; choose another name", "exists"
                ) from None
            if tenancy.find_unix_user(found) != user:
                raise TenantError(
                    f"tenant {name} exists already, {'without' if user is not None else 'with'} walls"
                ) from None
            # Only what stopped before its first token is taken up again: the rest would undo a rotation or a ban.
            tenant = await self._read(found)
            if tenant.disabled:
                raise TenantError(
                    f"tenant {name} is disabled; `trainmaster tenant enable {name}` lets it in again", "exists"
                ) from None
            if await self._list_tokens(name):
                raise _build_exists(name) from None

    async def _furnish(self, name: str, allowance: Allowance) -> None:
        limits = tenancy.build_limit_range(allowance)
        await self._ensure(RESOURCE_QUOTAS, tenancy.build_quota(allowance), name)
        if limits is not None:
            await self._ensure(LIMIT_RANGES, limits, name)
        await self._ensure(SERVICE_ACCOUNTS, tenancy.build_service_account(), name)
        await self._ensure(ROLE_BINDINGS, tenancy.build_role_binding(name), name)

    async def _reserve_user(self, name: str, fresh: bool) -> int:
        """Written down under the revision that was read, so two tenants never get the same."""
        for _ in range(_TRIES):
            register = await self._read_register()
            entries: dict[str, str] = register.get("data") or {}
            if name in entries:
                if fresh:
                    raise _build_taken(name)
                return int(entries[name])
            user = max((int(text) + 1 for text in entries.values()), default=tenancy.FIRST_USER)
            if user > tenancy.LAST_USER:
                raise TenantError(f"all user ids up to {tenancy.LAST_USER} are taken")
            try:
                changed = {**register, "data": {**entries, name: str(user)}}
                await self._client.update(CONFIG_MAPS, changed, tenancy.SYSTEM_NAMESPACE)
            except Conflict:
                continue
            return user
        raise TenantError("too many tenants are being added at this moment; try again")

    async def _read_register(self) -> Object:
        place = (CONFIG_MAPS, tenancy.REGISTER, tenancy.SYSTEM_NAMESPACE)
        try:
            return await self._client.get(*place)
        except NotFound:
            empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": tenancy.REGISTER}}
            await self._ensure(CONFIG_MAPS, empty, tenancy.SYSTEM_NAMESPACE)
            return await self._client.get(*place)

    async def _renew(self, name: str, life: timedelta) -> Issued:
        taken = {secret["metadata"]["name"] for secret in await self._list_tokens(name)}
        await self._revoke(name)
        await self._ensure(SERVICE_ACCOUNTS, tenancy.build_service_account(), name)
        number = 1 + max((int(text.rpartition("-")[2]) for text in taken if text[-1:].isdigit()), default=0)
        return await self._issue(name, f"{NAME}-token-{number}", life)

    async def _revoke(self, name: str) -> None:
        """The ServiceAccount first: that voids every token at once, also one that the tenant got in another way."""
        await self._remove(SERVICE_ACCOUNTS, NAME, name)
        for secret in await self._list_tokens(name):
            await self._remove(SECRETS, secret["metadata"]["name"], name)

    async def _issue(self, name: str, secret_name: str, life: timedelta) -> Issued:
        expires = format_time(self._clock.now() + life)
        secret = await self._client.create(SECRETS, tenancy.build_token_secret(secret_name, expires), name)
        bound = {"kind": "Secret", "apiVersion": "v1", "name": secret_name, "uid": secret["metadata"]["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(life.total_seconds()), "boundObjectRef": bound},
        }
        answer = await self._client.create(SERVICE_ACCOUNTS, request, name, subresource="token", name=NAME)
        given = answer["status"]
        return Issued(name, name, str(given["token"]), str(given["expirationTimestamp"]))

    # Small helpers

    async def _read(self, namespace: Object) -> Tenant:
        return tenancy.read_tenant(namespace, await self._list_tokens(namespace["metadata"]["name"]))

    async def _list_tokens(self, namespace: str) -> list[Object]:
        options = ListOptions(label_selector=f"{tenancy.TOKEN_LABEL}=true")
        return (await self._client.list(SECRETS, namespace, options)).items

    async def _find_namespace(self, name: str) -> Object:
        try:
            found = await self._client.get(NAMESPACES, name)
        except NotFound:
            found = {"metadata": {}}
        if (found["metadata"].get("labels") or {}).get(tenancy.TENANT) != name:
            raise TenantError(f"there is no tenant {name}; `trainmaster tenant list` shows all", "missing")
        return found

    async def _annotate(self, name: str, disabled: str | None) -> None:
        patch = {"metadata": {"annotations": {tenancy.DISABLED: disabled}}}
        await self._client.patch(NAMESPACES, name, PatchType.MERGE, patch)

    async def _ensure(self, gvr: GVR, obj: Object, namespace: str) -> None:
        try:
            await self._client.create(gvr, obj, namespace)
        except AlreadyExists:
            return

    async def _remove(self, gvr: GVR, name: str, namespace: str) -> None:
        try:
            await self._client.delete(gvr, name, namespace, DeleteOptions(propagation="Background"))
        except NotFound:
            return


def _build_exists(name: str) -> TenantError:
    return TenantError(
        f"tenant {name} exists already; `trainmaster tenant rotate {name}` gives it a new token", "exists"
    )


def _build_taken(name: str) -> TenantError:
    return TenantError(f"the name {name} is taken", "exists")


def _check_life(life: timedelta) -> None:
    if not SHORTEST_LIFE <= life <= LONGEST_LIFE:
        raise TenantError("a token lives at least 10 minutes and at most 365 days", "invalid")


def check_walls(nodes: list[Object]) -> str:
    """Why a tenant on this machine would have no walls; "" when it has. On a cluster containers are the walls."""
    for node in nodes:
        level = (node["metadata"].get("annotations") or {}).get(ISOLATION)
        if level is not None and level != "full":
            return (
                f"Pods run at isolation level {level} here, so tenants could read each other's files. Run the server "
                "as root on a machine where `trainmaster doctor` finds level full, or accept it with --without-walls"
            )
    return ""
