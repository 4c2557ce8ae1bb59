"""Decides which addresses a Pod's proxy may connect to.

A name is resolved once, every address is checked, and the connection is made to the address that was checked, so that
DNS rebinding has no effect. The notation of an address (decimal, octal, IPv4-mapped IPv6) does not matter, because the
check is on the address that the system would connect to.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket

LAN = "lan"
"""Everything except this machine itself."""
INTERNET = "internet"
"""Public addresses only, and none of this machine's."""
NONE = "none"
"""Nothing except what the owner has allowed."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED = tuple(ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
"""IPv6 addresses that a gateway translates to IPv4: NAT64, 6to4, Teredo."""


def parse_address(text: str) -> Address:
    """Drops the zone, and converts IPv4-mapped addresses to IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def find_refusal(address: Address, reach: str) -> str:
    """Why a Pod may not connect to the address, as the rest of a sentence that begins with it; "" if it may. `reach` ""
    is for the owner's jobs, which may connect to anything except this machine's loopback."""
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return "belongs to the machine itself: Pods are not let through to it"
    if not reach:
        return ""
    if is_own(address):
        return "belongs to the machine itself: Pods of tenants are not let through to it"
    if reach == LAN:
        return ""
    if reach == NONE:
        return "is not open to Pods of tenants (settings node.tenant_egress and node.tenant_egress_allow)"
    is_public = address.is_global and not address.is_reserved
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        is_public = False
    if not is_public or any(address in network for network in _TRANSLATED if network.version == address.version):
        return (
            "is not a public address: Pods of tenants are let through to the internet only "
            "(settings node.tenant_egress and node.tenant_egress_allow)"
        )
    return ""


def is_own(address: Address) -> bool:
    """Whether the address leads to this machine: it belongs to an interface, or is routed to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return _can_bind(family, str(address)) or _answers_itself(family, str(address))


def _can_bind(family: socket.AddressFamily, address: str) -> bool:
    if _binds_anything(family):
        return False
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return True
    return False


def _answers_itself(family: socket.AddressFamily, address: str) -> bool:
    """Asks the system for the route and source address; no packet is sent."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return bool(ipaddress.ip_address(str(probe.getsockname()[0])) == ipaddress.ip_address(address))
    return False


def _binds_anything(family: socket.AddressFamily) -> bool:
    """With this setting of the machine, addresses that it does not have can be bound too."""
    version = "ipv4" if family == socket.AF_INET else "ipv6"
    try:
        with open(f"/proc/sys/net/{version}/ip_nonlocal_bind") as stream:
            return stream.read().strip() != "0"
    except OSError:
        return False


def is_opened(allow: tuple[str, ...], host: str, port: int, address: Address | None = None) -> bool:
    """Whether the owner has allowed it: `host:port`, or an address or network with or without a port."""
    name = host.lower().rstrip(".")
    for entry in allow:
        place, number = split_entry(entry)
        if number and number != port:
            continue
        network = _find_network(place)
        if network is None:
            if number and place == name:
                return True
        elif address is not None and network.version == address.version and address in network:
            return True
    return False


def split_entry(entry: str) -> tuple[str, int]:
    """(host, address or network; port or 0). Raises ValueError."""
    text = entry.strip().lower()
    if _find_network(text.strip("[]")) is not None:
        return text.strip("[]"), 0
    place, colon, number = text.rpartition(":")
    place = place.strip("[]").rstrip(".")
    if not colon or not place or not number.isdecimal() or not 0 < int(number) < 65536 or not place.isascii():
        raise ValueError(f"{entry!r} is neither host:port nor an address or network")
    return place, int(number)


def _find_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
