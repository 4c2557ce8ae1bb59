"""Gets an identity provider's keys: from a file, a URL, or the issuer's discovery document.

URLs must be https (http only to this machine), and redirects are not followed. A name is resolved once, its addresses
are checked, and the connection uses the checked address. Private and loopback addresses are allowed only if the owner
configured them or `rest.oidc_private_addresses` permits it, link-local ones (cloud metadata) never. So neither DNS nor
the discovery document can direct requests to the server's own network. Runs in a thread, with limits on time and size.
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import orjson

from trainmaster.kit.addresses import is_private
from trainmaster.rest.jwks import Fetch, KeysUnavailable

_SECONDS = 10.0
"""Seconds for one answer, from connecting to its last byte."""
_MOST_BYTES = 1024 * 1024
_DESCRIPTION = "/.well-known/openid-configuration"

Resolve = Callable[[str, int], Sequence[str]]
"""The IP addresses of a host. Raises OSError if there are none."""


def resolve(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


@dataclass(frozen=True, slots=True)
class ProviderSource:
    """The owner's settings."""

    issuer: str
    keys: str = ""
    """A URL, a file, or "" to use the issuer's discovery document."""
    ca: str = ""
    """A file with the CA of its certificate; "" for the system's."""
    private: bool = False
    """Also allow private and loopback addresses."""

    def is_named(self, host: str) -> bool:
        """Whether the owner configured exactly this address."""
        return _is_literal(host) and host in (urlsplit(self.issuer).hostname, urlsplit(self.keys).hostname)


def build_fetch(source: ProviderSource, *, resolve: Resolve = resolve, seconds: float = _SECONDS) -> Fetch:
    async def fetch() -> object:
        try:
            # Resolvers have their own, long timeouts; the thread ends when they expire.
            return await asyncio.wait_for(asyncio.to_thread(_read_keys, source, resolve, seconds), 3 * seconds)
        except TimeoutError:
            raise KeysUnavailable(f"{source.keys or source.issuer} does not answer in {3 * seconds:g} s") from None

    return fetch


def _read_keys(source: ProviderSource, resolve: Resolve, seconds: float) -> object:
    if source.keys and "://" not in source.keys:
        try:
            with Path(source.keys).open("rb") as file:
                return _parse(source.keys, file.read(_MOST_BYTES + 1))
        except OSError as error:
            raise KeysUnavailable(f"{source.keys}: {error}") from None
    if source.keys:
        return _get(source.keys, source, resolve, seconds)
    described = _get(source.issuer.rstrip("/") + _DESCRIPTION, source, resolve, seconds)
    if not isinstance(described, dict) or described.get("issuer") != source.issuer:
        raise KeysUnavailable(f"{source.issuer}{_DESCRIPTION} does not describe the issuer {source.issuer}")
    return _get(str(described.get("jwks_uri")), source, resolve, seconds)


def _get(url: str, source: ProviderSource, resolve: Resolve, seconds: float) -> object:
    if not is_private(url) or "@" in urlsplit(url).netloc:
        raise KeysUnavailable(f"{url} is not https, or names a user")
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        address = choose_address(host, resolve(host, port), allow_private=source.private or source.is_named(host))
        return _parse(url, _ask(parts, address, port, source.ca, seconds))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise KeysUnavailable(f"{url}: {error}") from None


def choose_address(host: str, addresses: Sequence[str], *, allow_private: bool) -> str:
    """The first permitted address. Raises ValueError with the reason if there is none."""
    for text in addresses:
        found = ipaddress.ip_address(text.partition("%")[0])
        address = getattr(found, "ipv4_mapped", None) or found
        barred = address.is_link_local or address.is_multicast or address.is_unspecified
        if not barred and (address.is_global or allow_private):
            return text
    raise ValueError(
        f"{host} is at a private address ({', '.join(addresses)}), and rest.oidc_private_addresses is not set"
    )


def _ask(parts: SplitResult, address: str, port: int, ca: str, seconds: float) -> bytes:
    """The body of the answer. The whole exchange has a time limit, however slowly bytes arrive."""
    host = parts.hostname or ""
    channel = socket.create_connection((address, port), timeout=seconds)
    # A separate descriptor, because TLS takes over the other one.
    handle = channel.dup()
    watchdog = threading.Timer(seconds, _cut, (handle,))
    watchdog.start()
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    connection.sock = channel
    try:
        if parts.scheme == "https":
            tls = ssl.create_default_context(cafile=ca or None)
            connection.sock = tls.wrap_socket(channel, server_hostname=host)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Host": parts.netloc, "Accept": "application/json"})
        with connection.getresponse() as answer:
            if answer.status != http.client.OK:
                raise ValueError(f"the answer is {answer.status}; redirects are not followed")
            return answer.read(_MOST_BYTES + 1)
    finally:
        watchdog.cancel()
        watchdog.join()
        handle.close()
        connection.close()


def _cut(channel: socket.socket) -> None:
    try:
        channel.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _parse(where: str, body: bytes) -> object:
    if len(body) > _MOST_BYTES:
        raise KeysUnavailable(f"{where} has more than {_MOST_BYTES} bytes")
    try:
        return orjson.loads(body)
    except ValueError:
        raise KeysUnavailable(f"{where} is not JSON") from None


def _is_literal(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
