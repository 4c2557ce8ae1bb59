"""The REST API of embedded mode: its address is available at once, its code is imported later.

Every start imports this module, so it imports nothing of `rest`. The services are imported in a thread, shortly after
the start, to clean up after a crash; the web framework at the first request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trainmaster.apiserver.http.subresources.logs import PodLogs
from trainmaster.app.rest.serving import build_tls, build_url, open_listener, serving_on_demand
from trainmaster.auth.pki import Pki
from trainmaster.kit.scopes import Scope

if TYPE_CHECKING:
    from trainmaster.app.control_plane import ControlPlane
    from trainmaster.rest.contract import Backend
    from trainmaster.rest.services.creation.sweeping import Sweeper

log = logging.getLogger(__name__)

_SWEEP_AFTER_SECONDS = 5.0


def _load() -> None:
    """Called in a thread, because the imports take a quarter of a second."""
    import trainmaster.app.rest.embedded_backend  # noqa: F401


class _Parts:
    """Built once, on first use."""

    def __init__(self, api: ControlPlane, logs: PodLogs | None) -> None:
        self._api = api
        self._logs = logs
        self._made: tuple[Backend, Sweeper] | None = None
        self._making = asyncio.Lock()
        self._is_made = asyncio.Event()

    async def get(self) -> tuple[Backend, Sweeper]:
        async with self._making:
            if self._made is None:
                await asyncio.to_thread(_load)
                from trainmaster.app.rest.embedded_backend import build_parts

                self._made = build_parts(self._api, self._logs)
                self._is_made.set()
            return self._made

    async def get_backend(self) -> Backend:
        return (await self.get())[0]

    async def share(self) -> None:
        """Runs the sources of live data, once there is somebody to follow them."""
        await self._is_made.wait()
        await (await self.get_backend()).sources.run()

    async def sweep(self) -> None:
        await self._api.world.clock.sleep(_SWEEP_AFTER_SECONDS)
        while True:
            try:
                sweeper = (await self.get())[1]
                break
            except OSError:
                # No file descriptor is left to read the code with. That is temporary, so do not stop the server.
                log.exception("cannot be loaded", extra={"action": "rest.load"})
                await self._api.world.clock.sleep(_SWEEP_AFTER_SECONDS)
        await sweeper.run()


@asynccontextmanager
async def serving_rest(
    api: ControlPlane, pki: Pki, logs: PodLogs | None, notes: list[str]
) -> AsyncIterator[Mapping[str, str]]:
    """Yields the address, as `trainmaster status` shows it; appends notes for the owner to `notes`."""
    world = api.world
    listener, more = open_listener(world.settings.rest, world.home.find_port("rest"))
    notes += more
    world.home.write_port(listener.getsockname()[1], "rest")
    parts = _Parts(api, logs)
    tls = build_tls(str(pki.server.certificate), str(pki.server.key))
    serving = serving_on_demand(listener, tls, parts.get_backend, world.settings.limits, world.clock, api.gatekeeper)
    async with Scope("rest.parts") as scope, serving:
        scope.spawn_forever(parts.sweep(), name="rest.sweep")
        scope.spawn_forever(parts.share(), name="rest.sources")
        yield {"url": build_url(listener), "ca": str(pki.ca.certificate)}
