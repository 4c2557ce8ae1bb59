"""The files in /etc that a Pod has of its own: hosts, hostname, resolv.conf, nsswitch.conf.

They are in the Pod's directory and bind-mounted over the machine's. A bind mount refers to the file and not its name,
so an update must overwrite the file, and readers must see complete lines at every moment: the file gets its size with
newlines at the end before or after its content is replaced with one write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainmaster.shim.protocol import OWN_NETWORK, Mount, SandboxSpec, write_whole

_MOST = 1 << 20
"""A Pod whose user may write the file can make it arbitrarily long; this much of it is overwritten."""
_LOCAL = (("127.0.0.1", "localhost"), ("::1", "localhost", "ip6-localhost", "ip6-loopback"))
_RESOLV = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"


def build_hosts(lines: Sequence[Sequence[str]]) -> bytes:
    return "".join("\t".join((line[0], " ".join(line[1:]))) + "\n" for line in (*_LOCAL, *lines)).encode()


def build_nsswitch(machine: str) -> str:
    """The machine's file, but names are looked up in files only: its name servers cannot be reached, and trying takes
    10 s."""
    kept = [line for line in machine.splitlines() if not line.strip().startswith("hosts:")]
    return "\n".join((*kept, "hosts: files", ""))


def write_common(place: str) -> None:
    """Called once per zygote: writes the files that are the same in all Pods. They are read-only there.

    A file that is up to date is left alone: a shim of the previous zygote may be about to mount it in its Pod, which
    fails if the file was replaced in between."""
    os.makedirs(place, exist_ok=True)
    files = {"resolv.conf": _RESOLV, "nsswitch.conf": build_nsswitch(_read_text("/etc/nsswitch.conf"))}
    for name, text in files.items():
        if _read_text(f"{place}/{name}") != text:
            write_whole(f"{place}/{name}", text.encode())
        os.chmod(f"{place}/{name}", 0o644)  # regardless of the umask: Pods have other users


def write_files(directory: str, pod: SandboxSpec, common: str) -> list[Mount]:
    """Writes the Pod's own files to `directory`/etc and returns the mounts for all of them."""
    place = f"{directory}/etc"
    os.makedirs(place, exist_ok=True)
    _write(f"{place}/hosts", build_hosts(pod.hosts))
    _write(f"{place}/hostname", f"{pod.hostname}\n".encode())
    mounts = [Mount("/etc/hosts", f"{place}/hosts"), Mount("/etc/hostname", f"{place}/hostname")]
    if pod.network == OWN_NETWORK:
        mounts += [
            Mount(f"/etc/{name}", f"{common}/{name}", read_only=True) for name in ("resolv.conf", "nsswitch.conf")
        ]
    return mounts


def rewrite_hosts(directory: str, lines: Sequence[Sequence[str]]) -> None:
    """Called by the control plane while the Pod runs. Raises FileNotFoundError if the Pod has no such file."""
    path = f"{directory}/etc/hosts"
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        content, size = build_hosts(lines), os.fstat(handle).st_size
        if len(content) > size:
            os.pwrite(handle, b"\n" * (len(content) - size), size)
        os.pwrite(handle, content + b"\n" * (min(size, _MOST) - len(content)), 0)
        os.ftruncate(handle, len(content))
    finally:
        os.close(handle)


def _read_text(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""


def _write(path: str, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(handle, 0o644)
        os.write(handle, content)
    finally:
        os.close(handle)
