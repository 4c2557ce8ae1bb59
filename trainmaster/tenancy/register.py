"""Records which tenant names and Unix users were ever given, as one small object each in the system namespace.

    ConfigMap trainmaster-tenant-NAME        a present or past tenant: its Unix user, whether it signed up itself
    ConfigMap trainmaster-unix-user-NUMBER   a Unix user that was given, and its first owner

Creating the object reserves the name or user, so two requests at the same time never get the same one, and no object
grows with the number of tenants. A Unix user is never given to a second tenant. A name can be given again once its
tenant and everything that it left behind is gone (`FindLeftovers`), and then with another Unix user.

Earlier releases used a single ConfigMap (`api.tenancy.REGISTER`). Its content is migrated once; it stays readable.
After a crash between any two writes the same call continues; at worst a number is reserved that nobody uses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trainmaster.api import tenancy
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES
from trainmaster.api.status import AlreadyExists, Conflict, NotFound
from trainmaster.api.tenancy import SYSTEM_NAMESPACE
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.tenancy.errors import TenantError, build_taken

FindLeftovers: TypeAlias = Callable[[str], Awaitable[str]]
"""Describes what remains of a tenant whose namespace was deleted: records, outputs, claims. "" if there is nothing."""
_TRIES = 50
"""Attempts to find a free user id while others are adding tenants."""


class Register:
    def __init__(self, client: Client, remains: FindLeftovers | None = None) -> None:
        """Without `remains` it is unknown what remains of a tenant, so no name becomes free again."""
        self._client = client
        self._remains = remains

    async def take(self, name: str, *, walled: bool, fresh: bool) -> int | None:
        """Reserves the name and, with `walled`, returns its Unix user. `fresh`: the request is from an unknown person,
        so the name must be free."""
        await self.carry_over()
        for _ in range(_TRIES):
            record = await self._find(tenancy.TENANT_RECORD + name)
            if record is not None and fresh:
                await self._free(name, record)
                record = None
            if record is not None:
                if not walled or tenancy.find_recorded_user(record) is not None:
                    return tenancy.find_recorded_user(record) if walled else None
                await self._client.delete(
                    CONFIG_MAPS, record["metadata"]["name"], SYSTEM_NAMESPACE, _only(record)
                )  # it had no Unix user before; now it gets one
            user = await self._take_user(name) if walled else None
            try:
                await self._client.create(CONFIG_MAPS, tenancy.build_record(name, user, fresh), SYSTEM_NAMESPACE)
            except AlreadyExists:
                continue
            return user
        raise _too_busy()

    async def give_back(self, name: str) -> None:
        """After the namespace was refused: the tenant was never created, so the name is released."""
        record = await self._find(tenancy.TENANT_RECORD + name)
        if record is not None:
            await self._client.delete(CONFIG_MAPS, record["metadata"]["name"], SYSTEM_NAMESPACE, _only(record))

    async def find_obstacle(self, name: str) -> str:
        """Why a new tenant cannot have the name; "" if it can. Changes nothing."""
        record = await self._find(tenancy.TENANT_RECORD + name)
        if record is None:
            register = await self._find(tenancy.REGISTER)
            return "given" if name in read_fields(register, "data") else ""
        return await self._find_left(name)

    async def count_signed_up(self) -> int:
        """The number of tenants that signed up themselves, including those whose name is not free yet."""
        options = ListOptions(label_selector=tenancy.SIGNED_UP)
        return len((await self._client.list(CONFIG_MAPS, SYSTEM_NAMESPACE, options)).items)

    async def carry_over(self) -> int:
        """Migrates the old ConfigMap; returns the number of tenants. Runs once, and again only after a crash."""
        register = await self._find(tenancy.REGISTER)
        if register is None or tenancy.CARRIED_OVER in read_annotations(register):
            return 0
        entries = {name: int(text) for name, text in read_fields(register, "data").items()}
        owners = {user: name for name, user in entries.items()}
        for user in range(tenancy.FIRST_USER, max(owners, default=tenancy.FIRST_USER - 1) + 1):
            # Without gaps, because the next free number is found by binary search.
            await self._ensure(tenancy.build_user_record(user, owners.get(user, "")))
        for name, user in entries.items():
            await self._ensure(tenancy.build_record(name, user, False))
        patch = {"metadata": {"annotations": {tenancy.CARRIED_OVER: "true"}}}
        await self._client.patch(CONFIG_MAPS, tenancy.REGISTER, PatchType.MERGE, patch, SYSTEM_NAMESPACE)
        return len(entries)

    async def _free(self, name: str, record: Object) -> None:
        """Raises TenantError if anything remains of the last tenant with that name."""
        if await self._find_left(name):
            raise build_taken(name)
        try:
            await self._client.delete(CONFIG_MAPS, record["metadata"]["name"], SYSTEM_NAMESPACE, _only(record))
        except (NotFound, Conflict):
            raise build_taken(name) from None  # somebody else was faster

    async def _find_left(self, name: str) -> str:
        try:
            await self._client.get(NAMESPACES, name)
        except NotFound:
            return "given" if self._remains is None else await self._remains(name)
        return "its namespace"

    async def _take_user(self, name: str) -> int:
        for _ in range(_TRIES):
            user = await self._choose_free_user()
            if user > tenancy.LAST_USER:
                raise TenantError(f"all user ids up to {tenancy.LAST_USER} are taken")
            try:
                await self._client.create(CONFIG_MAPS, tenancy.build_user_record(user, name), SYSTEM_NAMESPACE)
            except AlreadyExists:
                continue
            return user
        raise _too_busy()

    async def _choose_free_user(self) -> int:
        """Numbers are given in order and never released, so the first free one is found by binary search."""
        given, step = tenancy.FIRST_USER - 1, 1
        while given + step <= tenancy.LAST_USER and await self._is_given(given + step):
            given, step = given + step, step * 2
        free = min(given + step, tenancy.LAST_USER + 1)
        while free - given > 1:
            middle = (given + free) // 2
            if await self._is_given(middle):
                given = middle
            else:
                free = middle
        return free

    async def _is_given(self, user: int) -> bool:
        return await self._find(f"{tenancy.USER_RECORD}{user}") is not None

    async def _find(self, name: str) -> Object | None:
        try:
            return await self._client.get(CONFIG_MAPS, name, SYSTEM_NAMESPACE)
        except NotFound:
            return None

    async def _ensure(self, obj: Object) -> None:
        try:
            await self._client.create(CONFIG_MAPS, obj, SYSTEM_NAMESPACE)
        except AlreadyExists:
            return


def _only(record: Object) -> DeleteOptions:
    return DeleteOptions(uid=record["metadata"]["uid"], resource_version=record["metadata"]["resourceVersion"])


def _too_busy() -> TenantError:
    return TenantError("too many tenants are being added at this moment; try again")
