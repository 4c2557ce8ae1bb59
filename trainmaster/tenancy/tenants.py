"""Adds, lists, disables and deletes tenants, and manages their tokens.

A token is a ServiceAccount's, requested with TokenRequest and bound to a Secret. It is shown once and not stored;
deleting the Secret revokes it at once, and deleting the ServiceAccount revokes all. Every step can be repeated: after a
crash between any two writes, the same command continues where it stopped, and no unrevoked token is left over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from trainmaster.api import tenancy
from trainmaster.api.labels import ISOLATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_annotations, read_fields, read_labels
from trainmaster.api.resources import (
    LIMIT_RANGES,
    NAMESPACES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.api.tenancy import NAME, Allowance, Tenant
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.kit.clock import Clock, format_time, parse_time
from trainmaster.tenancy.errors import TenantError, build_taken
from trainmaster.tenancy.register import FindLeftovers, Register

DEFAULT_LIFE = timedelta(days=90)
SHORTEST_LIFE, LONGEST_LIFE = timedelta(minutes=10), timedelta(days=365)
_FIRST_TOKEN = f"{NAME}-token-1"
_TRIES = 5
"""Attempts to issue a token while others do the same."""


@dataclass(frozen=True, slots=True)
class Issued:
    tenant: str
    namespace: str
    token: str
    expires: str


class TenantRegister:
    def __init__(self, client: Client, clock: Clock, remains: FindLeftovers | None = None) -> None:
        self._client = client
        self._clock = clock
        self.register = Register(client, remains)

    async def add(
        self, name: str, allowance: Allowance, *, walled: bool, life: timedelta = DEFAULT_LIFE, fresh: bool = False
    ) -> Issued:
        """`walled`: its Pods run as a Unix user of its own; embedded mode only, and the node must support it. `fresh`:
        the request is from an unknown person, so a name is taken as long as anything remains of its last tenant."""
        _check_life(life)
        await self._make(name, allowance, walled=walled, fresh=fresh)
        try:
            return await self._issue(name, _FIRST_TOKEN, life)
        except AlreadyExists:
            raise _build_exists(name) from None

    async def prepare(self, name: str, allowance: Allowance, *, walled: bool) -> Tenant:
        """Makes one that has no token yet, so that none has to be told to anybody."""
        await self._make(name, allowance, walled=walled, fresh=False)
        return await self.get(name)

    async def _make(self, name: str, allowance: Allowance, *, walled: bool, fresh: bool) -> None:
        problem = tenancy.find_name_problem(name)
        if problem:
            raise TenantError(problem, "invalid")
        user = await self.register.take(name, walled=walled, fresh=fresh)
        try:
            await self._make_namespace(name, user, fresh)
        except StatusError as error:
            # Only if the namespace was definitely refused; after any other error it may exist.
            if fresh and 400 <= error.code < 500:
                with suppress(StatusError):
                    await self.register.give_back(name)
            raise
        await self._create_objects(name, allowance)

    async def list_all(self) -> list[Tenant]:
        namespaces = await self._client.list(NAMESPACES, options=ListOptions(label_selector=tenancy.TENANT))
        return [await self._read(namespace) for namespace in namespaces.items]

    async def get(self, name: str) -> Tenant:
        return await self._read(await self._get_namespace(name))

    async def change(self, name: str, changes: Mapping[str, str | int | None]) -> Tenant:
        """Maps fields of its `Allowance` to new values; None removes a limit. Applies to objects created from then
        on."""
        await self._get_namespace(name)
        hard = tenancy.build_hard_changes(changes)
        try:
            patch = {"spec": {"hard": hard}}
            quota = await self._client.patch(RESOURCE_QUOTAS, NAME, PatchType.MERGE, patch, name)
        except NotFound:
            made = tenancy.build_quota(Allowance())
            given = {key: amount for key, amount in hard.items() if amount is not None}
            made["spec"]["hard"] |= given
            quota = await self._client.create(RESOURCE_QUOTAS, made, name)
        if {"cpu", "memory"} & set(changes):
            limits = tenancy.build_limit_range(read_fields(quota, "spec", "hard"))
            await self._remove(LIMIT_RANGES, NAME, name)
            if limits is not None:
                await self._ensure(LIMIT_RANGES, limits, name)
        return await self.get(name)

    async def rotate(self, name: str, *, life: timedelta = DEFAULT_LIFE) -> Issued:
        """Issues a new token. All earlier ones are revoked before it exists."""
        _check_life(life)
        await self._check_enabled(name)
        return await self._renew(name, life)

    async def add_token(self, name: str, *, life: timedelta) -> Issued:
        """Issues a token beside the earlier ones, which stay valid. Expired ones are forgotten."""
        _check_life(life)
        await self._check_enabled(name)
        await self._ensure(SERVICE_ACCOUNTS, tenancy.build_service_account(), name)
        for _ in range(_TRIES):
            secrets = await self._list_tokens(name)
            try:
                issued = await self._issue(name, _name_next(secrets), life)
            except AlreadyExists:
                continue  # somebody else issues one at this moment
            for secret in secrets:
                if self._is_expired(secret):
                    await self._remove(SECRETS, secret["metadata"]["name"], name)
            return issued
        raise TenantError(f"others issue tokens for tenant {name} all the time; try again in a moment")

    async def enable(self, name: str, *, life: timedelta = DEFAULT_LIFE) -> Issued:
        _check_life(life)
        await self._get_namespace(name)
        await self._ensure(ROLE_BINDINGS, tenancy.build_role_binding(name), name)
        issued = await self._renew(name, life)
        await self._annotate(name, None)
        return issued

    async def readmit(self, name: str) -> Tenant:
        """As `enable`, without a token."""
        await self._get_namespace(name)
        await self._ensure(ROLE_BINDINGS, tenancy.build_role_binding(name), name)
        await self._ensure(SERVICE_ACCOUNTS, tenancy.build_service_account(), name)
        await self._annotate(name, None)
        return await self.get(name)

    async def disable(self, name: str) -> Tenant:
        """When this returns the tenant has no rights and no tokens. Its jobs keep running; delete or suspend them if
        needed."""
        await self._get_namespace(name)
        await self._annotate(name, format_time(self._clock.now()))
        await self._remove(ROLE_BINDINGS, NAME, name)
        await self._revoke(name)
        return await self.get(name)

    async def delete(self, name: str) -> Tenant:
        """Deletes everything in the namespace. The Unix user stays reserved, and history keeps its records."""
        tenant = await self.disable(name)
        await self._client.delete(NAMESPACES, name)
        return tenant

    # Steps; each can be repeated.

    async def _make_namespace(self, name: str, user: int | None, fresh: bool) -> None:
        try:
            await self._client.create(NAMESPACES, tenancy.build_namespace(name, user))
        except AlreadyExists:
            if fresh:
                raise build_taken(name) from None
            found = await self._client.get(NAMESPACES, name)
            if read_labels(found).get(tenancy.TENANT) != name:
                raise TenantError(
                    f"namespace {name} exists and belongs to no tenant; choose another name", "exists"
                ) from None
            if tenancy.find_unix_user(found) != user:
                raise TenantError(
                    f"tenant {name} exists already, {'without' if user is not None else 'with'} walls"
                ) from None
            # Continue only if the tenant has never had a token; otherwise this would undo a rotation or a ban.
            tenant = await self._read(found)
            if tenant.disabled:
                raise TenantError(
                    f"tenant {name} is disabled; `trainmaster tenant enable {name}` lets it in again", "exists"
                ) from None
            if await self._list_tokens(name):
                raise _build_exists(name) from None

    async def _create_objects(self, name: str, allowance: Allowance) -> None:
        limits = tenancy.build_limit_range(allowance.to_hard())
        await self._ensure(RESOURCE_QUOTAS, tenancy.build_quota(allowance), name)
        if limits is not None:
            await self._ensure(LIMIT_RANGES, limits, name)
        await self._ensure(SERVICE_ACCOUNTS, tenancy.build_service_account(), name)
        await self._ensure(ROLE_BINDINGS, tenancy.build_role_binding(name), name)

    async def _renew(self, name: str, life: timedelta) -> Issued:
        secret = _name_next(await self._list_tokens(name))
        await self._revoke(name)
        await self._ensure(SERVICE_ACCOUNTS, tenancy.build_service_account(), name)
        return await self._issue(name, secret, life)

    async def _revoke(self, name: str) -> None:
        """Deletes the ServiceAccount first, which revokes all tokens at once, including any that the tenant requested
        itself."""
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

    # Helpers

    async def _read(self, namespace: Object) -> Tenant:
        name = namespace["metadata"]["name"]
        try:
            quota: Object | None = await self._client.get(RESOURCE_QUOTAS, NAME, name)
        except NotFound:
            quota = None
        return tenancy.read_tenant(namespace, await self._list_tokens(name), quota)

    async def _list_tokens(self, namespace: str) -> list[Object]:
        options = ListOptions(label_selector=f"{tenancy.TOKEN_LABEL}=true")
        return (await self._client.list(SECRETS, namespace, options)).items

    async def _get_namespace(self, name: str) -> Object:
        try:
            found = await self._client.get(NAMESPACES, name)
        except NotFound:
            found = {"metadata": {}}
        if read_labels(found).get(tenancy.TENANT) != name:
            raise TenantError(f"there is no tenant {name}; `trainmaster tenant list` shows all", "missing")
        return found

    async def _check_enabled(self, name: str) -> None:
        if (await self.get(name)).disabled:
            raise TenantError(f"tenant {name} is disabled; `trainmaster tenant enable {name}` gives it a token again")

    def _is_expired(self, secret: Object) -> bool:
        expires = read_annotations(secret).get(tenancy.EXPIRES, "")
        return bool(expires) and parse_time(expires) < self._clock.now()

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


def _name_next(secrets: Sequence[Object]) -> str:
    """After those that there are, so that no name of a token is used twice."""
    taken = (secret["metadata"]["name"] for secret in secrets)
    number = 1 + max((int(text.rpartition("-")[2]) for text in taken if text[-1:].isdigit()), default=0)
    return f"{NAME}-token-{number}"


def _build_exists(name: str) -> TenantError:
    return TenantError(
        f"tenant {name} exists already; `trainmaster tenant rotate {name}` gives it a new token", "exists"
    )


def _check_life(life: timedelta) -> None:
    if not SHORTEST_LIFE <= life <= LONGEST_LIFE:
        raise TenantError("a token lives at least 10 minutes and at most 365 days", "invalid")


def check_walls(nodes: list[Object]) -> str:
    """Why tenants on this machine would not be isolated; "" if they are. On a cluster, containers isolate them."""
    for node in nodes:
        level = read_annotations(node).get(ISOLATION)
        if level is not None and level != "full":
            return (
                f"Pods run at isolation level {level} here, so tenants could read each other's files. Run the server "
                "as root on a machine where `trainmaster doctor` finds level full, or accept it with --without-walls"
            )
    return ""
