"""Messages between the control plane, the zygote and shims: one JSON object per SEQPACKET record, with descriptors.

A record arrives completely or not at all, so there is no framing. Received descriptors are close-on-exec from the
start. Socket paths exceed the length limit of Unix addresses, so `listen_in` and `connect_in` use a descriptor of the
directory.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

MAX_BYTES = 1 << 17
"""Maximum size of a message; fits into the kernel's default send buffer."""
_MAX_FDS = 8
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class WireError(Exception):
    """The other side violates the protocol, or a message is too long."""


def make_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)


def send(link: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Raises BlockingIOError if the receiver does not keep up, ConnectionError if it is gone."""
    content = _ENCODER.encode(message).encode()
    if len(content) > MAX_BYTES:
        raise WireError(f"a message of {len(content)} bytes is longer than {MAX_BYTES}")
    if fds:
        link.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    else:
        link.send(content)


def receive(link: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors; None if the other side has disconnected. BlockingIOError if there is
    none."""
    space = socket.CMSG_SPACE(_MAX_FDS * 4)
    try:
        content, ancillary, flags, _ = link.recvmsg(MAX_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None, []
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not content:
        close_all(fds)
        return None, []
    try:
        if flags & socket.MSG_TRUNC:
            raise WireError(f"a message is longer than {MAX_BYTES} bytes")
        message = json.loads(content)
        if not isinstance(message, dict):
            raise WireError("a message is not a JSON object")
    except (ValueError, RecursionError, WireError) as error:
        close_all(fds)
        raise WireError(f"unreadable message: {error}") from error
    return message, fds.tolist()


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def listen_in(directory: str, name: str, mode: int = 0o600) -> socket.socket:
    """A listening socket at directory/name; atomically replaces an existing one."""
    link = make_socket()
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        draft = f"{name}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=handle)
        link.bind(f"/proc/self/fd/{handle}/{draft}")
        os.chmod(f"/proc/self/fd/{handle}/{draft}", mode)
        link.listen(64)
        os.rename(draft, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        link.close()
        raise
    finally:
        os.close(handle)
    return link


def accept(listener: socket.socket) -> socket.socket | None:
    """None if the client has disconnected again, or no descriptor is left; it will retry."""
    try:
        link, _ = listener.accept()
    except OSError:
        return None
    link.setblocking(False)
    return link


def connect_in(directory: str, name: str) -> socket.socket:
    """Raises FileNotFoundError or ConnectionRefusedError if nobody listens there."""
    link = make_socket()
    handle = -1
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        link.connect(f"/proc/self/fd/{handle}/{name}")
    except BaseException:
        link.close()
        raise
    finally:
        if handle >= 0:
            os.close(handle)
    return link
