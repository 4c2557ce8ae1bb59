"""Finds the client's address: that of the connection's peer, or the one that a trusted proxy reports.

Only X-Forwarded-For is read. Proxies append to it, so the rightmost address that is not a trusted proxy is the one that
the outermost trusted proxy saw; everything to the left of it is a claim of the client. `Forwarded` is ignored: a proxy
that writes one of the two headers passes the other one on unchanged, and the client could choose its address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MOST_HOPS = 20


def parse_network(text: str) -> Network:
    """Raises ValueError if the text is neither an address nor a network."""
    return ipaddress.ip_network(text.strip(), strict=False)


def parse_address(text: str) -> Address | None:
    """Parses an address with or without a port, brackets or a zone. IPv4-mapped IPv6 addresses become IPv4."""
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class TrustedProxies:
    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [parse_network(text) for text in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, peer: str) -> bool:
        """Whether X-Forwarded-For from this peer is used."""
        if not self._networks:
            return False
        address = parse_address(peer)
        return address is not None and self._contains(address)

    def get_client(self, peer: str, forwarded_for: str) -> str:
        """The client's address. `forwarded_for` holds all lines of the header in order, joined by commas."""
        if not self._networks or not forwarded_for or not self.trusts(peer):
            return peer
        client = peer
        for text in reversed(forwarded_for.split(",")[-_MOST_HOPS:]):
            address = parse_address(text)
            if address is None:
                # Anything to the left of an invalid address cannot be trusted.
                break
            client = str(address)
            if not self._contains(address):
                break
        return client

    def _contains(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)


def build_address_group(peer: str) -> str:
    """The key for limits per address: an IPv4 address, or the /64 of an IPv6 address, which one host can choose
    from."""
    address = parse_address(peer)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return peer if address is None else str(address)
