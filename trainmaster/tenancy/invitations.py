"""Invitation codes, with which people can become tenants themselves: valid for a number of uses, until a time, with an
allowance.

A code is shown once. It is stored as a ConfigMap in the system namespace that is named by the code's hash, so reading
it does not reveal the code. A use is subtracted before the tenant is created, conditional on the revision that was
read, so two people cannot share the last use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta

from trainmaster.api import tenancy
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_labels
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import Conflict, NotFound
from trainmaster.api.tenancy import SYSTEM_NAMESPACE, Allowance
from trainmaster.client.contract import Client, DeleteOptions, ListOptions
from trainmaster.kit.clock import Clock, format_time
from trainmaster.tenancy.errors import TenantError

DEFAULT_LIFE = timedelta(days=7)
LONGEST_LIFE = timedelta(days=365)
MOST_USES = 10_000
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Invitation:
    id: str
    """The beginning of the hash. It identifies the invitation but cannot be used as a code."""
    uses: int
    """The number of remaining uses."""
    expires: str
    allowance: Allowance


class Invitations:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def invite(
        self, code: str, allowance: Allowance, *, uses: int = 1, life: timedelta = DEFAULT_LIFE
    ) -> Invitation:
        """`code`: an unguessable text, made by the caller and shown once."""
        if not 1 <= uses <= MOST_USES:
            raise TenantError(f"an invitation is for 1 to {MOST_USES} tenants", "invalid")
        if not timedelta(minutes=1) <= life <= LONGEST_LIFE:
            raise TenantError("an invitation lasts at least a minute and at most 365 days", "invalid")
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _build_name(code), "labels": {tenancy.INVITATION: "true"}},
            "data": {
                "uses": str(uses),
                "expires": format_time(self._clock.now() + life),
                "allowance": json.dumps(asdict(allowance), sort_keys=True),
            },
        }
        return _read(await self._client.create(CONFIG_MAPS, obj, SYSTEM_NAMESPACE))

    async def list_all(self) -> list[Invitation]:
        options = ListOptions(label_selector=tenancy.INVITATION)
        found = (await self._client.list(CONFIG_MAPS, SYSTEM_NAMESPACE, options)).items
        return [_read(obj) for obj in found]

    async def withdraw(self, id: str) -> None:
        """By the id from `list_all`."""
        options = ListOptions(label_selector=tenancy.INVITATION)
        found = (await self._client.list(CONFIG_MAPS, SYSTEM_NAMESPACE, options)).items
        names = [obj["metadata"]["name"] for obj in found if _read(obj).id == id]
        if not names:
            raise TenantError(f"there is no invitation {id}", "missing")
        for name in names:
            await self._client.delete(CONFIG_MAPS, name, SYSTEM_NAMESPACE)

    async def use(self, code: str) -> tuple[Allowance, Callable[[], Awaitable[None]]]:
        """Subtracts one use. Returns the allowance of the tenant, and a function that restores the use if the tenant
        could not be created."""
        for _ in range(_TRIES):
            obj = await self._find(code)
            if await self._take_off(obj):
                break
        else:
            raise TenantError("too many come with this invitation at this moment; try again")

        async def give_back() -> None:
            await self._give_back(obj)

        return _read(obj).allowance, give_back

    async def _find(self, code: str) -> Object:
        try:
            obj = await self._client.get(CONFIG_MAPS, _build_name(code), SYSTEM_NAMESPACE)
        except NotFound:
            raise _no_such() from None
        if tenancy.INVITATION not in read_labels(obj):
            raise _no_such()
        if _read(obj).expires <= format_time(self._clock.now()):
            await self._remove(obj)
            raise _no_such()
        return obj

    async def _take_off(self, obj: Object) -> bool:
        left = _read(obj).uses - 1
        try:
            if left < 1:
                await self._remove(obj)
            else:
                changed = {**obj, "data": {**obj["data"], "uses": str(left)}}
                await self._client.update(CONFIG_MAPS, changed, SYSTEM_NAMESPACE)
        except (Conflict, NotFound):
            return False
        return True

    async def _give_back(self, used: Object) -> None:
        name = used["metadata"]["name"]
        for _ in range(_TRIES):
            try:
                now = await self._client.get(CONFIG_MAPS, name, SYSTEM_NAMESPACE)
            except NotFound:
                fresh = {"name": name, "labels": dict(used["metadata"]["labels"])}
                again = {**used, "metadata": fresh, "data": {**used["data"], "uses": "1"}}
                await self._client.create(CONFIG_MAPS, again, SYSTEM_NAMESPACE)
                return
            try:
                data = {**now["data"], "uses": str(_read(now).uses + 1)}
                await self._client.update(CONFIG_MAPS, {**now, "data": data}, SYSTEM_NAMESPACE)
            except Conflict:
                continue
            return

    async def _remove(self, obj: Object) -> None:
        meta = obj["metadata"]
        options = DeleteOptions(uid=meta["uid"], resource_version=meta["resourceVersion"])
        await self._client.delete(CONFIG_MAPS, meta["name"], SYSTEM_NAMESPACE, options)


def _build_name(code: str) -> str:
    return tenancy.INVITATION_NAME + hashlib.sha256(code.encode()).hexdigest()


def _read(obj: Object) -> Invitation:
    data = obj["data"]
    digest = obj["metadata"]["name"].removeprefix(tenancy.INVITATION_NAME)
    return Invitation(digest[:12], int(data["uses"]), data["expires"], Allowance(**json.loads(data["allowance"])))


def _no_such() -> TenantError:
    return TenantError("this invitation is unknown, used up or expired; ask for another one")
