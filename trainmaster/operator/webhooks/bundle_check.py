"""Whether API servers can verify the certificate of the webhooks, where somebody else keeps it and `caBundle`.

Used by the leader of an operator with a mounted certificate, and by `trainmaster doctor`. It changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.monitoring.troubles import OperatorTrouble
from trainmaster.operator.webhooks.bundles import CONFIGURATIONS
from trainmaster.operator.webhooks.keys import MountedKeys

_TURNS = 4


class BundleCheck:
    """Where somebody else keeps certificate and `caBundle`: says when they do not fit together, so that API servers
    would refuse to talk to us. Changes nothing."""

    def __init__(self, client: Client, keys: MountedKeys, name: str, clock: Clock) -> None:
        self._client = client
        self._name = name
        self._keys = keys
        self._clock = clock
        self._found: dict[GVR, Object] = {}

    async def run(self) -> NoReturn:
        async with Scope("bundle-check") as scope:
            for gvr in CONFIGURATIONS:
                scope.spawn_forever(self._follow(gvr), name=f"bundles.{gvr.plural}")
            await asyncio.Event().wait()
        raise AssertionError("it follows for ever")

    async def _follow(self, gvr: GVR) -> NoReturn:
        async def begin(found: list[Object]) -> None:
            self._found.pop(gvr, None)
            for item in found:
                self._found[gvr] = item

        async def change(event: WatchEvent) -> None:
            await begin([] if event.type == "DELETED" else [event.object])

        await follow(self._client, self._clock, gvr, begin, change, field_selector=f"metadata.name={self._name}")

    def __call__(self) -> list[OperatorTrouble]:
        wrong = [gvr.plural for gvr, found in self._found.items() if not all(map(self._is_right, list_hooks(found)))]
        if not wrong:
            return []
        return [
            OperatorTrouble(
                "CABundleWrong",
                f"API servers cannot verify the certificate of the webhooks: `caBundle` in {' and '.join(wrong)} "
                f"{self._name} is not of its CA, or it is not for the name by which they are called; have cert-manager "
                "inject the CA (annotation cert-manager.io/inject-ca-from), or write it there",
            )
        ]

    def _is_right(self, hook: WebhookClient) -> bool:
        return accepts(self._keys.context, hook.bundle, hook.host)


class WebhookClient(NamedTuple):
    """How an API server reaches one webhook."""

    bundle: str
    """PEM."""
    host: str


def list_hooks(configuration: Object) -> list[WebhookClient]:
    found = []
    for hook in list_items(configuration, "webhooks"):
        service = read_fields(hook, "clientConfig", "service")
        url = urlsplit(read_text(hook, "clientConfig", "url")).hostname or ""
        host = f"{service['name']}.{service['namespace']}.svc" if service else url
        found.append(WebhookClient(read_bundle(hook), host))
    return list(dict.fromkeys(found))


def read_bundle(hook: Fields) -> str:
    """ "" if it is none."""
    try:
        return base64.b64decode(read_text(hook, "clientConfig", "caBundle")).decode("ascii")
    except ValueError:
        return ""


def accepts(server: ssl.SSLContext, bundle: str, host: str) -> bool:
    """Whether a client that trusts only this CA takes the certificate of a server for that of `host`: the handshake,
    in memory."""
    try:
        client = ssl.create_default_context(cadata=bundle)
    except (ssl.SSLError, ValueError):
        return False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    # The client has seen everything after a few turns. What the server thinks of the client does not matter.
    for end in ends * _TURNS:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
        if end is ends[0]:
            return True
    return False
