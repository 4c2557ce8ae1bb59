"""The records port of one operator: every replica with the archive serves, and the leader keeps `caBundle` right."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.monitoring.telling import Telling
from trainmaster.operator.records.access import RecordAccess
from trainmaster.operator.records.front_proxy import FrontProxyWatch
from trainmaster.operator.records.installation import SECRET, TARGET
from trainmaster.operator.records.reading import ArchiveReader
from trainmaster.operator.records.server import RecordService, RecordsPort
from trainmaster.operator.records.settings import RecordsSettings
from trainmaster.operator.webhooks.bundles import BundleKeeper
from trainmaster.operator.webhooks.keys import MountedKeys, SecretKeys


class ServingRecords:
    """Serving records; `maintained` is for the leader."""

    def __init__(self, keys: SecretKeys | MountedKeys, front: FrontProxyWatch, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self.list_troubles = front.list_troubles

    def read_expiry(self) -> datetime | None:
        """When the certificate that serves expires."""
        return self._keys.expires

    @asynccontextmanager
    async def maintained(self, client: Client, told: Telling) -> AsyncIterator[None]:
        """`client`: the leader's. A certificate that somebody else keeps is left to them, with `caBundle`."""
        told.add(self.list_troubles)
        async with Scope("records.leader") as scope:
            if isinstance(self._keys, SecretKeys):
                scope.spawn_forever(self._keys.rotate(client), name="records.rotate")
                keeper = BundleKeeper(client, self._keys, self._clock, [TARGET])
                scope.spawn_forever(keeper.run(), name="records.bundle")
            yield


@asynccontextmanager
async def serving_records(
    client: Client, archive: Path, settings: RecordsSettings, clock: Clock
) -> AsyncIterator[ServingRecords]:
    """Raises OSError if the certificate or the port cannot be used, StatusError if the cluster refuses something."""
    keys: SecretKeys | MountedKeys
    if settings.directory is not None:
        keys = MountedKeys(settings.directory, clock)
    else:
        keys = SecretKeys(client, settings.namespace, settings.names, clock, settings.rotation, SECRET)
        await keys.start()
    front = FrontProxyWatch(client, clock)
    await front.start()
    service = RecordService(ArchiveReader(archive), RecordAccess(client), clock)
    port = RecordsPort(service, front, _trust(keys, front), settings.host, settings.port, clock)
    front.on_change = lambda: port.replace_tls(_trust(keys, front))
    async with Scope("records") as scope, port:
        scope.spawn_forever(keys.follow(), name="records.certificate")
        scope.spawn_forever(front.follow(), name="records.front_proxy")
        yield ServingRecords(keys, front, clock)


def _trust(keys: SecretKeys | MountedKeys, front: FrontProxyWatch) -> ssl.SSLContext:
    """A context that verifies certificates of clients. They need none, so that those without get an answer."""
    context = keys.renew_context()
    if front.trusted is not None:
        context.load_verify_locations(cadata=front.trusted.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
