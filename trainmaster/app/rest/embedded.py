"""The REST API of embedded mode: its address is available at once, its code is imported later.

Every start imports this module, so it imports nothing of `rest`. The services are imported in a thread, shortly after
the start, to clean up after a crash; the web framework at the first request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainmaster.app.rest.serving import (
    Door,
    build_plain_place,
    build_rest_place,
    build_tls,
    build_url,
    open_listener,
    serving_on_demand,
)
from trainmaster.auth.pki import Pki
from trainmaster.kit.scopes import Scope

if TYPE_CHECKING:
    from trainmaster.app.control_plane import ControlPlane, PodConnections
    from trainmaster.rest.contract import Backend
    from trainmaster.rest.services.creation.sweeping import Sweeper

log = logging.getLogger(__name__)

_SWEEP_AFTER_SECONDS = 5.0


def _load() -> None:
    """Called in a thread, because the imports take a quarter of a second."""
    import trainmaster.app.rest.embedded_backend  # noqa: F401


class _Parts:
    """Built once, on first use."""

    def __init__(self, api: ControlPlane, pods: PodConnections, *, end_logins: bool) -> None:
        self._api = api
        self._pods = pods
        self._end_logins = end_logins
        self._made: tuple[Backend, Sweeper] | None = None
        self._making = asyncio.Lock()
        self._is_made = asyncio.Event()

    async def get(self) -> tuple[Backend, Sweeper]:
        async with self._making:
            if self._made is None:
                await asyncio.to_thread(_load)
                from trainmaster.app.rest.embedded_backend import build_parts

                made = build_parts(self._api, self._pods)
                if self._end_logins:
                    await made[0].logins.end_all()
                self._made = made
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


@dataclass(frozen=True, slots=True)
class RestAddresses:
    """As `trainmaster status` shows them."""

    rest: dict[str, str]
    dashboard: dict[str, str]


@asynccontextmanager
async def serving_rest(
    api: ControlPlane, pki: Pki, pods: PodConnections, notes: list[str]
) -> AsyncIterator[RestAddresses]:
    """Yields the addresses; appends notes for the owner to `notes`."""
    world = api.world
    async with AsyncExitStack() as stack:
        listener, more = _open(api, "rest", stack)
        doors = [Door(listener, build_tls(str(pki.server.certificate), str(pki.server.key)))]
        notes += more
        url = page = build_url(listener)
        lost: list[str] = []
        if world.settings.dashboard.plain:
            plain, lost = _open(api, "dashboard", stack)
            doors.append(Door(plain, None))
            notes += lost
            page = build_url(plain, "http")
        # If another program has the port, pages that are still open may have sent it their logins.
        parts = _Parts(api, pods, end_logins=bool(lost))
        serving = serving_on_demand(doors, parts.get_backend, world.settings.limits, world.clock, api.gatekeeper)
        scope = await stack.enter_async_context(Scope("rest.parts"))
        await stack.enter_async_context(serving)
        scope.spawn_forever(parts.sweep(), name="rest.sweep")
        scope.spawn_forever(parts.share(), name="rest.sources")
        yield RestAddresses({"url": url, "ca": str(pki.ca.certificate)}, {"url": f"{page}/ui/"})


def _open(api: ControlPlane, name: str, stack: AsyncExitStack) -> tuple[socket.socket, list[str]]:
    """On the port of the last start if possible, which is kept for the next one."""
    home, settings = api.world.home, api.world.settings
    place = build_rest_place(settings.rest) if name == "rest" else build_plain_place(settings.dashboard)
    listener, notes = open_listener(place, home.find_port(name))
    stack.callback(listener.close)
    home.write_port(listener.getsockname()[1], name)
    return listener, notes
