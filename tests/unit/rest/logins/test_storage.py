"""The Secret with the state of logins, on a real registry: shared, compared and set, made again when it is broken."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from tests.support.rest import RestApi, running_rest
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import SECRETS
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import SYSTEM_NAMESPACE
from trainmaster.rest.logins.state import EMPTY, LoginState
from trainmaster.rest.logins.storage import SECRET, MemoryStorage, SecretStorage, StateChanged
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

ONE, TWO = LoginState("one"), LoginState("two")


def play(tmp_path: Path, scene: Any) -> None:
    async def main() -> None:
        async with running_rest(tmp_path) as rest:
            await scene(rest)

    run_virtual(main())


def test_two_replicas_see_each_others_writes_and_never_overwrite_them(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        first, second = (SecretStorage(rest.client, SYSTEM_NAMESPACE) for _ in range(2))
        empty = await first.read()
        assert (empty.state, empty.version) == (EMPTY, "")
        made = await first.write(ONE, "")
        with pytest.raises(StateChanged):
            await second.write(TWO, "")
        assert await second.read() == made
        await second.write(TWO, made.version)
        with pytest.raises(StateChanged):
            await first.write(ONE, made.version)
        assert (await first.read()).state == TWO

    play(tmp_path, scene)


def test_a_secret_that_was_deleted_or_broken_is_made_again(tmp_path: Path) -> None:
    async def scene(rest: RestApi) -> None:
        storage = SecretStorage(rest.client, SYSTEM_NAMESPACE)
        made = await storage.write(ONE, "")
        await rest.client.delete(SECRETS, SECRET, SYSTEM_NAMESPACE)
        with pytest.raises(StateChanged):
            await storage.write(TWO, made.version)
        assert (await storage.read()).state == EMPTY
        await storage.write(ONE, "")
        secret = await rest.client.get(SECRETS, SECRET, SYSTEM_NAMESPACE)
        await rest.client.update(
            SECRETS, {**secret, "data": {"state": base64.b64encode(b"{").decode()}}, SYSTEM_NAMESPACE
        )
        broken = await storage.read()
        assert broken.state == EMPTY and broken.version
        assert (await storage.write(TWO, broken.version)).state == TWO

    play(tmp_path, scene)


class Refusing:
    """A cluster that lets this account keep no Secrets."""

    def __init__(self, code: int) -> None:
        self._code = code

    async def get(self, gvr: GVR, name: str, namespace: str = "") -> Object:
        raise StatusError(self._code, "Forbidden" if self._code == 403 else "InternalError", "no")

    async def create(self, gvr: GVR, obj: Object, namespace: str = "") -> Object:
        raise StatusError(self._code, "Forbidden", "no")


def test_without_the_permission_it_is_kept_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        storage = SecretStorage(Refusing(403), "x")  # type: ignore[arg-type]
        found = await storage.read()
        made = await storage.write(ONE, found.version)
        assert await storage.read() == made and made.state == ONE
        with pytest.raises(StatusError):
            await SecretStorage(Refusing(500), "x").read()  # type: ignore[arg-type]

    asyncio.run(main())
    assert len([record for record in caplog.records if "end with this process" in record.message]) == 1


def test_memory_compares_too() -> None:
    async def main() -> None:
        storage = MemoryStorage()
        made = await storage.write(ONE, "")
        with pytest.raises(StateChanged):
            await storage.write(TWO, "")
        await storage.write(TWO, made.version)

    asyncio.run(main())
