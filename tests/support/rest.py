"""The REST API in this process, without sockets: the real application on the real API server, with tokens and roles.

    async with running_rest(tmp_path) as rest:
        ann = await rest.add_tenant("ann")
        answer = await rest.call("GET", "/api/v1/me", token=ann)

`rest.owner` is the owner's token. `rest.kube` asks the Kubernetes side the same question with the same token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.prepared import copy_runtimes
from tests.unit.rest.asgi import Answer, call
from trainmaster.apiserver.local import LocalClient, LogSource
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.app.control_plane import ControlPlane, World
from trainmaster.app.home.credentials import ensure_secret
from trainmaster.app.home.folder import Home
from trainmaster.app.rest.embedded_backend import build_embedded_backend
from trainmaster.app.settings import Settings
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import SeededIds
from trainmaster.kit.scopes import Scope
from trainmaster.rest.application import build_app
from trainmaster.rest.contract import Backend
from trainmaster.rest.services.creation.sweeping import Sweeper
from trainmaster.testing.virtual import VirtualClock


@dataclass(frozen=True)
class RestApi:
    app: Any
    api: ControlPlane
    client: LocalClient
    """As the owner, without a token."""
    owner: str
    clock: Clock
    backend: Backend

    async def call(self, method: str, url: str, *, token: str | None, body: Any = None, **more: Any) -> Answer:
        return await call(self.app, method, url, token=token, body=body, **more)

    async def add_tenant(self, name: str, **more: Any) -> str:
        body = {"name": name, "without_walls": True, **more}
        answer = await self.call("POST", "/api/v1/tenants", token=self.owner, body=body)
        assert answer.status == 201, answer.body
        token: str = answer.json()["token"]
        return token

    def read_audit(self) -> list[dict[str, Any]]:
        """Lines of the audit log so far."""
        assert self.api.audit is not None
        self.api.audit.flush()
        return [json.loads(line) for line in self.api.world.home.audit_log.read_text().splitlines()]

    def as_token(self, token: str) -> Client:
        """The Kubernetes side for whoever holds the token. StatusError 401 when nobody does."""
        identity = self.api.authenticator.identify(f"Bearer {token}", None)
        assert identity is not None
        return self.client.as_user(identity)


@asynccontextmanager
async def running_rest(
    folder: Path, settings: Settings | None = None, *, logs: LogSource | None = None, clock: Clock | None = None
) -> AsyncIterator[RestApi]:
    home, clock = Home(folder / "home"), clock or VirtualClock()
    home.pki.mkdir(parents=True)
    home.logs.mkdir()
    world = World(home, settings or Settings(), {}, clock, SeededIds(7))
    api = ControlPlane(world, copy_runtimes())
    try:
        async with api.registry.running("a test's CA"):
            ensure_built_ins(api.registry)
            await api.registry.settled()
            client = LocalClient(api.registry, authorizer=api.authorizer, log_source=logs)
            backend = build_embedded_backend(api, client, Sweeper(client, clock))
            owner = ensure_secret(home, "owner.token", world.ids)
            async with Scope("rest.parts") as scope:
                scope.spawn_forever(backend.sources.run(), name="rest.sources")
                yield RestApi(build_app(backend), api, client, owner, clock, backend)
    finally:
        if api.audit is not None:
            api.audit.close()
        api.close()
