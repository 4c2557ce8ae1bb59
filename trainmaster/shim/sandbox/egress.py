"""Where the proxy of a Pod may lead, judged by address.

A name is resolved once, every address is judged, and the connection is made to the address that was judged: a name
that means something else a moment later gains nothing. How an address is spelled (decimal, octal, IPv6 around IPv4)
does not matter, because what is judged is what the system would connect to.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket

LAN = "lan"
"""Everything but this machine itself."""
INTERNET = "internet"
"""Public addresses only, and none of this machine's."""
NONE = "none"
"""Nothing but what the owner has opened."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED = tuple(ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
"""IPv6 addresses that stand for IPv4 ones: NAT64, 6to4, Teredo. A gateway would lead to the latter."""


def parse_address(text: str) -> Address:
    """As an address that is judged: without a zone, and as IPv4 where it is that in an IPv6 coat."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def find_refusal(address: Address, reach: str) -> str:
    """Why a Pod is not let through to it, to be put behind the address; "" when it is. `reach` "": the owner's jobs,
    which may use all but the loopback of this machine."""
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
    """Whether it leads to this machine: whatever interface has it, and whatever is routed to it."""
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
    """No packet is sent: the system only chooses a route, and what it would send from."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return bool(ipaddress.ip_address(str(probe.getsockname()[0])) == ipaddress.ip_address(address))
    return False


def _binds_anything(family: socket.AddressFamily) -> bool:
    """A machine with this setting lets everybody bind what it does not have."""
    version = "ipv4" if family == socket.AF_INET else "ipv6"
    try:
        with open(f"/proc/sys/net/{version}/ip_nonlocal_bind") as stream:
            return stream.read().strip() != "0"
    except OSError:
        return False


def is_opened(allow: tuple[str, ...], host: str, port: int, address: Address | None = None) -> bool:
    """Whether the owner has opened it: `host:port`, or an address or network with or without a port."""
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
    """(host, address or network; port or 0). ValueError when it is none."""
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
