"""The Pods' network: one switch per home in its own network namespace, and one namespace with a veth per Pod.

A switch has segments, which are bridges that are not connected: all of the owner's Pods are on one, those of each
tenant on another. The switch's namespace has no address and forwards nothing, so no packet crosses segments.

The machine's own network is never modified, and no clean-up is needed: the switch exists while the zygote or any shim
holds a descriptor of it, and a Pod's namespace (with its end of the veth) disappears with its shim. A new zygote finds
the switch again through the running shims (`find_switch`).

As root, a process can enter the switch and return; an ordinary user inside a user namespace cannot return to the
machine's network. `run_elsewhere` hides the difference: there a short-lived child does the work and sends back
descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.shim.protocol import LONGEST_SEGMENT, Paths, Relay
from trainmaster.shim.sandbox.linux import CLONE_NEWNET, open_namespace, setns, unshare
from trainmaster.shim.sandbox.netlink import Netlink

MTU = 65535
"""The maximum: no packet leaves the machine, and gloo is a quarter faster than with 1500."""
PORTS_PER_BRIDGE = 900
"""A Linux bridge has at most 1,024 ports; some of the first one's connect the other bridges."""
INTERFACE = "eth0"
_LOOPBACK = 1


@dataclass(frozen=True, slots=True)
class PodNetwork:
    namespace: int
    listeners: tuple[int, ...]
    """One descriptor per relay, in order."""


def run_elsewhere(work: Callable[[], Sequence[int]], *, may_return: bool) -> list[int]:
    """Runs `work`, which changes the network namespace, without changing that of this process. Returns its
    descriptors."""
    if may_return:
        home = open_namespace("net")
        try:
            return list(work())
        finally:
            setns(home, CLONE_NEWNET)
            os.close(home)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        child = os.fork()
        if child == 0:
            _answer(theirs, work)
        theirs.close()
        message, handles, _, _ = socket.recv_fds(ours, 4096, 64)
    with contextlib.suppress(ChildProcessError):  # the shim's loop may have reaped it
        os.waitpid(child, 0)
    if not message.startswith(b"{"):
        raise OSError(errno.EIO, "the helper that builds the network died")
    answer = json.loads(message)
    if "error" in answer:
        raise OSError(answer["errno"], answer["error"])
    for handle in handles:
        os.set_inheritable(handle, False)
    return handles


def _answer(channel: socket.socket, work: Callable[[], Sequence[int]]) -> None:
    """Runs in the child and never returns."""
    try:
        try:
            socket.send_fds(channel, [b"{}"], list(work()))
        except OSError as error:
            channel.send(json.dumps({"errno": error.errno or errno.EIO, "error": str(error)}).encode())
    finally:
        os._exit(0)


def make_switch(*, may_return: bool) -> int:
    """A descriptor of a new switch."""

    def work() -> list[int]:
        unshare(CLONE_NEWNET)
        _disable_ipv6("default")
        with Netlink() as link:
            link.add_bridge("br0")
        return [open_namespace("net")]

    return run_elsewhere(work, may_return=may_return)[0]


def find_switch(pids: Sequence[tuple[str, int]]) -> int | None:
    """The switch of an earlier zygote, from (Pod directory, pid of a running shim)."""
    for directory, pid in pids:
        try:
            with open(Paths(directory).sandbox, "rb") as stream:
                record = json.load(stream)
            handle = os.open(f"/proc/{pid}/fd/{record['switch']}", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError, KeyError):
            continue
        if os.fstat(handle).st_ino == record["inode"]:
            return handle
        os.close(handle)
    return None


def build_record(switch: int) -> dict[str, int]:
    """The data that `find_switch` needs to find the switch through this shim."""
    return {"switch": switch, "inode": os.fstat(switch).st_ino}


def connect_pod(
    switch: int, address: str, prefix: int, relays: Sequence[Relay], *, may_return: bool, segment: str = ""
) -> PodNetwork:
    """Creates a namespace with `address` on a segment of the switch, and a listener for each relay."""
    network = ipaddress.ip_network(f"{address}/{prefix}", strict=False)
    number = int(ipaddress.ip_address(address)) - int(network.network_address)

    def work() -> list[int]:
        setns(switch, CLONE_NEWNET)
        with Netlink() as link:
            bridge = ensure_bridge(link, number // PORTS_PER_BRIDGE, segment)
            unshare(CLONE_NEWNET)
            _disable_ipv6("default")
            namespace = open_namespace("net")
            _plug(link, f"p{number:x}", namespace, bridge, socket.inet_aton(address))
        _configure(address, prefix, relays)
        return [namespace, *(listen(relay.address, relay.port).detach() for relay in relays)]

    namespace, *listeners = run_elsewhere(work, may_return=may_return)
    return PodNetwork(namespace, tuple(listeners))


def _plug(link: Netlink, name: str, namespace: int, bridge: int, raw: bytes) -> None:
    mac = b"\x0a\x58" + raw
    try:
        link.add_pair(name, INTERFACE, bridge=bridge, mtu=MTU, peer_namespace=namespace, mac=mac)
    except FileExistsError:
        # The kernel removes namespaces asynchronously: the previous owner of this address may still exist.
        with contextlib.suppress(OSError):
            link.delete(name)
        link.add_pair(name, INTERFACE, bridge=bridge, mtu=MTU, peer_namespace=namespace, mac=mac)


def _configure(address: str, prefix: int, relays: Sequence[Relay]) -> None:
    with Netlink() as link:
        link.set_up(_LOOPBACK)
        for extra in dict.fromkeys(relay.address for relay in relays):
            if not ipaddress.ip_address(extra).is_loopback:
                link.add_address(_LOOPBACK, extra, 32)
        index = socket.if_nametoindex(INTERFACE)
        link.add_address(index, address, prefix)
        link.set_up(index)


def listen(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(64)
    return listener


def ensure_bridge(link: Netlink, number: int, segment: str = "") -> int:
    """The index of bridge `number` of a segment, created if necessary; all others are connected to the first. Two shims
    may do this at the same time."""
    if segment and not (segment.isascii() and segment.isalnum() and len(segment) <= LONGEST_SEGMENT):
        raise OSError(errno.EINVAL, f"{segment!r} is no name for a segment")
    first, name = (f"{segment or 'br'}{'.' if segment else ''}{part}" for part in (0, number))
    if segment and not _read_index(first):
        with contextlib.suppress(FileExistsError):
            link.add_bridge(first)
    up, down = (f"{letter}{segment}{'.' if segment else ''}{number}" for letter in "ud")
    if number and not (_read_index(name) and _read_index(up)):
        with contextlib.suppress(FileExistsError):
            link.add_bridge(name)
        with contextlib.suppress(FileExistsError):
            link.add_pair(up, down, bridge=socket.if_nametoindex(first), mtu=MTU)
        link.set_up(socket.if_nametoindex(down), bridge=socket.if_nametoindex(name))
    return socket.if_nametoindex(name)


def _read_index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


def open_socket(namespace: int, *, may_return: bool) -> socket.socket:
    """A TCP socket in the Pod's network."""

    def work() -> list[int]:
        setns(namespace, CLONE_NEWNET)
        return [socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()]

    return socket.socket(fileno=run_elsewhere(work, may_return=may_return)[0])


def _disable_ipv6(which: str) -> None:
    """Later interfaces get no link-local address, whose announcements would flood every port."""
    try:
        handle = os.open(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # no IPv6, or /proc/sys is not writable: harmless
    try:
        os.write(handle, b"1")
    finally:
        os.close(handle)
