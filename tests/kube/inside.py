"""The first process inside `Namespaces`: prepares mounts and network, forwards ports, and takes care of orphans.

Started by tests/kube/namespaces.py only: `python -m tests.kube.inside CONTROL WORK BUSYBOX ADDRESS`. On the control
socket it receives listening sockets of the machine outside and connects whoever comes to the same port in here. It ends
when the other side of the control socket is closed, and everything inside ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.kube.namespaces import CGROUPS, list_hierarchies

# What kubelet wants to find. It reads files of ours in their place, so the machine's own settings stay as they are.
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_CHUNK = 65536


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


def prepare_mounts() -> None:
    hierarchies = list_hierarchies()
    for where, options in hierarchies:
        # Mounted anew, its root is the cgroup that this namespace was made in.
        _run("umount", where)
        _run("mount", "-t", "cgroup", "-o", options, "cgroup", where)
    if not hierarchies:
        _prepare_unified()
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    folder = Path("/run/tunables")
    for name, value in _TUNABLES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        _run("mount", "--bind", file, f"/proc/sys/{name}")


def _prepare_unified() -> None:
    """In cgroup v2 a cgroup that hands controllers down has no processes of its own."""
    _run("umount", CGROUPS)
    _run("mount", "-t", "cgroup2", "cgroup2", CGROUPS)
    (CGROUPS / "init").mkdir()
    for pid in (CGROUPS / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (CGROUPS / "init" / "cgroup.procs").write_text(pid)
    controllers = (CGROUPS / "cgroup.controllers").read_text().split()
    (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def prepare_network(busybox: str, address: str) -> None:
    """The address of the node is that of a bridge, the one kind of device that every kernel with containers has."""
    for line in (
        "link set lo up",
        "link add node0 type bridge",
        f"address add {address}/24 dev node0",
        "link set node0 up",
        "route add default dev node0",
    ):
        _run(busybox, "ip", *line.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # of this network only


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    except OSError:
        writer.transport.abort()
        far_writer.transport.abort()
    finally:
        writer.close()
        far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To the end, which is passed on; the other direction may go on."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _reap() -> None:
    """The first process inherits what others leave behind."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


async def serve(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, _reap)
    servers: list[asyncio.Server] = []
    ended = loop.create_future()

    async def add(listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        servers.append(await asyncio.start_server(lambda r, w: forward(r, w, port), sock=listener))
        control.send(b"+")

    def receive() -> None:
        message, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            ended.set_result(None)
            return
        additions.append(loop.create_task(add(socket.socket(fileno=fds[0]))))

    additions: list[asyncio.Task[None]] = []
    loop.add_reader(control, receive)
    control.send(b"+")
    await ended


def main() -> None:
    control, work, busybox, address = sys.argv[1:]
    os.chdir(work)
    prepare_mounts()
    prepare_network(busybox, address)
    asyncio.run(serve(socket.socket(fileno=int(control))))


if __name__ == "__main__":
    main()
