"""The webhooks of one operator: every replica serves them, and the leader keeps certificate and configurations."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from trainmaster.api.declaring import catalogue
from trainmaster.client.contract import Client
from trainmaster.client.view import View
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.monitoring.telling import Telling
from trainmaster.operator.names import NAME
from trainmaster.operator.webhooks.bundle_check import BundleCheck
from trainmaster.operator.webhooks.bundles import BundleKeeper, list_webhook_targets
from trainmaster.operator.webhooks.configurations import PORT
from trainmaster.operator.webhooks.examiner import Examiner
from trainmaster.operator.webhooks.keys import MountedKeys, SecretKeys
from trainmaster.operator.webhooks.rotation import RotationTimes
from trainmaster.operator.webhooks.server import WebhookServer


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    namespace: str
    """Of the Secret with the certificate."""
    names: tuple[str, ...]
    """The names and addresses by which API servers reach this operator."""
    host: str = ""
    """The address to listen on; "" is all."""
    port: int = PORT
    directory: Path | None = None
    """With tls.crt and tls.key, kept current by somebody else; None: our own certificate, in a Secret."""
    client_ca: Path | None = None
    """PEM: only holders of a certificate of this CA may connect. None: whoever reaches the port."""
    configurations: str = NAME
    """The name of the webhook configurations by which they are called."""
    rotation: RotationTimes = field(default_factory=RotationTimes)


class Webhooks:
    """Serving webhooks; `maintained` is for the leader."""

    def __init__(self, keys: SecretKeys | MountedKeys, configurations: str, clock: Clock) -> None:
        self.keys = keys
        self._configurations = configurations
        self._clock = clock

    def read_expiry(self) -> datetime | None:
        """When the certificate that serves expires."""
        return self.keys.expires

    @asynccontextmanager
    async def maintained(self, client: Client, told: Telling) -> AsyncIterator[None]:
        """`client`: the leader's. What somebody else keeps current is left to them, and looked at."""
        async with Scope("webhooks.leader") as scope:
            if isinstance(self.keys, MountedKeys):
                check = BundleCheck(client, self.keys, self._configurations, self._clock)
                scope.spawn_forever(check.run(), name="webhooks.bundles")
                told.add(check)
            else:
                scope.spawn_forever(self.keys.rotate(client), name="webhooks.rotate")
                keeper = BundleKeeper(client, self.keys, self._clock, list_webhook_targets(self._configurations))
                scope.spawn_forever(keeper.run(), name="webhooks.bundles")
            yield


@asynccontextmanager
async def serving_webhooks(
    client: Client, view: View, settings: WebhookSettings, clock: Clock, *, namespaces: Collection[str] = ()
) -> AsyncIterator[Webhooks]:
    """`view` is complete; `namespaces`: the only ones that it shows, () is all. Raises OSError if the certificate or
    the port cannot be used."""
    keys: SecretKeys | MountedKeys
    if settings.directory is not None:
        keys = MountedKeys(settings.directory, clock)
    else:
        keys = SecretKeys(client, settings.namespace, settings.names, clock, settings.rotation)
        await keys.start()
    if settings.client_ca is not None:
        require_clients(keys.context, settings.client_ca)
    examiner = Examiner(view, client, catalogue.build(), clock, namespaces=namespaces)
    async with Scope("webhooks") as scope:
        scope.spawn_forever(keys.follow(), name="webhooks.certificate")
        async with WebhookServer(examiner, keys.context, settings.host, settings.port, clock):
            yield Webhooks(keys, settings.configurations, clock)


def check_files(settings: WebhookSettings, clock: Clock) -> None:
    """Raises OSError if a file that the settings name cannot be used."""
    if settings.directory is not None:
        MountedKeys(settings.directory, clock)
    if settings.client_ca is not None:
        require_clients(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings.client_ca)


def require_clients(context: ssl.SSLContext, ca: Path) -> None:
    """Raises OSError if the file holds no CA."""
    try:
        context.load_verify_locations(cafile=ca)
    except ssl.SSLError as error:
        raise OSError(f"{ca} holds no certificates: {error}") from None
    except OSError as error:
        raise OSError(f"cannot read the CA of clients, {ca}: {error.strerror}") from None
    context.verify_mode = ssl.CERT_REQUIRED
