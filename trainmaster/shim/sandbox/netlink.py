"""Minimal rtnetlink for a switch and its Pods: bridge, veth, address, up, list.

A socket stays in the network namespace in which it was opened, which `network.py` relies on. One request, one answer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from types import TracebackType

_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK, _RTM_NEWADDR = 16, 17, 18, 20
_REQUEST, _ACK, _DUMP, _EXCL, _CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 10, 18, 28
_IFF_UP = 1
_ERROR, _DONE = 2, 3


def attribute(kind: int, value: bytes | str | int) -> bytes:
    if isinstance(value, str):
        value = value.encode() + b"\0"
    elif isinstance(value, int):
        value = struct.pack("=I", value)
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def _link(flags: int = 0, index: int = 0) -> bytes:
    """struct ifinfomsg; the change mask equals the flags."""
    return struct.pack("=BxHiII", 0, 0, index, flags, flags)


class Netlink:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        body = _link(_IFF_UP) + attribute(_IFLA_IFNAME, name)
        body += attribute(_IFLA_LINKINFO, attribute(1, b"bridge\0"))
        self._ask(_RTM_NEWLINK, body, _CREATE | _EXCL, f"bridge {name}")

    def add_pair(
        self, name: str, peer: str, *, bridge: int, mtu: int, peer_namespace: int = -1, mac: bytes = b""
    ) -> None:
        """Creates a veth pair: `name` here, up and a port of `bridge`; `peer` in the other namespace, or here for
        -1."""
        inner = _link() + attribute(_IFLA_IFNAME, peer) + attribute(_IFLA_MTU, mtu)
        if peer_namespace >= 0:
            inner += attribute(_IFLA_NET_NS_FD, peer_namespace)
        if mac:
            inner += attribute(_IFLA_ADDRESS, mac)
        body = _link(_IFF_UP) + attribute(_IFLA_IFNAME, name) + attribute(_IFLA_MTU, mtu)
        body += attribute(_IFLA_MASTER, bridge)
        body += attribute(_IFLA_LINKINFO, attribute(1, b"veth\0") + attribute(2, attribute(1, inner)))
        self._ask(_RTM_NEWLINK, body, _CREATE | _EXCL, f"veth {name}")

    def set_up(self, index: int, *, bridge: int = 0) -> None:
        body = _link(_IFF_UP, index)
        if bridge:
            body += attribute(_IFLA_MASTER, bridge)
        self._ask(_RTM_NEWLINK, body, 0, "link up")

    def delete(self, name: str) -> None:
        self._ask(_RTM_DELLINK, _link() + attribute(_IFLA_IFNAME, name), 0, f"delete {name}")

    def add_address(self, index: int, address: str, prefix: int) -> None:
        raw = socket.inet_aton(address)
        body = struct.pack("=BBBBi", socket.AF_INET, prefix, 0, 0, index) + attribute(1, raw) + attribute(2, raw)
        self._ask(_RTM_NEWADDR, body, _CREATE, f"address {address}")

    def list_links(self) -> dict[str, int]:
        """Name -> index of every interface in the namespace."""
        self._send(_RTM_GETLINK, _link(), _DUMP)
        found: dict[str, int] = {}
        while True:
            data = self._socket.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    raise OSError(-struct.unpack_from("=i", data, 16)[0], "list links")
                index = struct.unpack_from("=i", data, 20)[0]
                name = _get_attribute(data[32:length], _IFLA_IFNAME)
                found[name.rstrip(b"\0").decode()] = index
                data = data[(length + 3) & ~3 :]

    def _send(self, kind: int, body: bytes, flags: int) -> None:
        self._sequence += 1
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, self._sequence, 0)
        self._socket.send(head + body)

    def _ask(self, kind: int, body: bytes, flags: int, what: str) -> None:
        self._send(kind, body, _ACK | flags)
        while True:
            data = self._socket.recv(1 << 16)
            _, answer, _, sequence, _ = struct.unpack_from("=IHHII", data)
            if answer == _ERROR and sequence == self._sequence:
                number = -struct.unpack_from("=i", data, 16)[0]
                if number:
                    raise OSError(number, f"{what}: {os.strerror(number)}")
                return


def _get_attribute(data: bytes, wanted: int) -> bytes:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if kind == wanted:
            return data[4:length]
        data = data[(length + 3) & ~3 :]
    raise OSError(errno.EBADMSG, "interface without a name")
