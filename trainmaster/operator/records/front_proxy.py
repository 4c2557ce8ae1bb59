"""Who sent a request: an API server that passes it on says so in headers, which are believed from it alone.

It proves itself with a client certificate of the CA that the cluster keeps for this in the ConfigMap
`kube-system/extension-apiserver-authentication`, with the names that are allowed and the names of the headers. TLS has
verified the certificate before anything here is called. The ConfigMap is watched, so a new CA is in force at once.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote

import orjson

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import ActingIdentity, Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.edge.messages import IncomingRequest
from trainmaster.kit.clock import Clock
from trainmaster.operator.monitoring.troubles import OperatorTrouble

log = logging.getLogger(__name__)

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
READER = "extension-apiserver-authentication-reader"
"""The Role in that namespace by which Kubernetes lets others read it."""
_COMMON_NAME = "commonName"


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """What the ConfigMap says."""

    ca: str
    """PEM."""
    names: tuple[str, ...]
    """Common names of certificates; () is any of this CA."""
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    uid_headers: tuple[str, ...] = ()


def read_front_proxy(config_map: Fields) -> FrontProxy | None:
    """None if the API servers of this cluster pass no requests on, or what is there cannot be used."""
    data = read_fields(config_map, "data")
    ca = read_text(data, "requestheader-client-ca-file")
    try:
        found = FrontProxy(
            ca,
            _read_list(data, "requestheader-allowed-names", lower=False),
            _read_list(data, "requestheader-username-headers"),
            _read_list(data, "requestheader-group-headers"),
            _read_list(data, "requestheader-extra-headers-prefix"),
            _read_list(data, "requestheader-uid-headers"),
        )
        # A CA that cannot be loaded would otherwise be noticed at the first connection.
        ssl.create_default_context(cadata=ca)
    except (ValueError, ssl.SSLError):
        return None
    return found if ca and found.user_headers else None


def _read_list(data: Fields, key: str, *, lower: bool = True) -> tuple[str, ...]:
    """Raises ValueError if it is no list of words."""
    found = orjson.loads(read_text(data, key) or "[]")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{key} is no list of words")
    return tuple(one.lower() if lower else one for one in found)


def read_caller(trusted: FrontProxy | None, request: IncomingRequest, now: float) -> ActingIdentity:
    """Raises StatusError 401 unless an API server sent the request. `now`: seconds since the epoch."""
    if trusted is None or not _is_trusted(trusted, request, now):
        raise StatusError(401, "Unauthorized", "only API servers may send requests here: ask yours")
    user = next(filter(None, (request.headers.get(name, "") for name in trusted.user_headers)), "")
    if not user:
        raise StatusError(401, "Unauthorized", "the request does not say whose it is")
    groups = [value for name in trusted.group_headers for value in request.values(name)]
    uid = next(filter(None, (request.headers.get(name, "") for name in trusted.uid_headers)), "")
    return ActingIdentity(user, uid, tuple(groups), dict(_list_extra(trusted, request)))


def _is_trusted(trusted: FrontProxy, request: IncomingRequest, now: float) -> bool:
    peer = request.peer
    if peer is None or now >= ssl.cert_time_to_seconds(peer.get("notAfter", "Jan  1 00:00:00 1970 GMT")):
        return False
    names = [value for part in peer.get("subject", ()) for key, value in part if key == _COMMON_NAME]
    return not trusted.names or any(name in trusted.names for name in names)


def _list_extra(trusted: FrontProxy, request: IncomingRequest) -> Sequence[tuple[str, tuple[str, ...]]]:
    """Keys arrive escaped, because headers cannot have every character."""
    return [
        (unquote(name.removeprefix(prefix)).lower(), tuple(request.values(name)))
        for prefix in trusted.extra_prefixes
        for name in request.headers
        if name.startswith(prefix) and name != prefix
    ]


class FrontProxyWatch:
    """`trusted` is what the ConfigMap says now; None if it says nothing that can be used."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.trusted: FrontProxy | None = None
        self.on_change: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Raises StatusError if it may not be read."""
        try:
            self._take(await self._client.get(CONFIG_MAPS, NAME, NAMESPACE))
        except NotFound:
            self._take(None)

    async def follow(self) -> NoReturn:
        async def begin(found: list[Object]) -> None:
            self._take(found[0] if found else None)

        async def change(event: WatchEvent) -> None:
            self._take(None if event.type == "DELETED" else event.object)

        selector = f"metadata.name={NAME}"
        await follow(
            self._client, self._clock, CONFIG_MAPS, begin, change, namespace=NAMESPACE, field_selector=selector
        )

    def _take(self, config_map: Object | None) -> None:
        found = None if config_map is None else read_front_proxy(config_map)
        if found != self.trusted:
            self.trusted = found
            log.info("who may pass requests on has changed", extra={"action": "records.front_proxy"})
            self.on_change()

    def list_troubles(self) -> list[OperatorTrouble]:
        if self.trusted is not None:
            return []
        return [
            OperatorTrouble(
                "AggregationMissing",
                "records of jobs cannot be read through this cluster: its API servers pass no requests on "
                f"(no requestheader-client-ca-file in the ConfigMap {NAMESPACE}/{NAME}); configure their aggregation "
                "layer, or set operator.records_port to 0",
            )
        ]
