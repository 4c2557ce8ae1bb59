"""A container's /dev: the usual nodes, its own terminals and shared memory, and the devices assigned to it.

Root creates the nodes; in a user namespace those of the machine are bind-mounted. There are no other nodes, and a
container cannot create any (security.py): a GPU that is not assigned cannot be opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from trainmaster.shim.sandbox import linux

USUAL = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
DEFAULT_SHM = 64 << 20
_NO_EXEC = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC


def make_shm(size: int) -> int:
    """A Pod's shared memory as a detached mount."""
    return linux.make_tree("tmpfs", {"mode": "1777", "size": str(size or DEFAULT_SHM)}, _NO_EXEC)


def build_dev(target: str, devices: Sequence[str], shm: int, *, make_nodes: bool) -> None:
    linux.mount("tmpfs", target, "tmpfs", linux.MS_NOSUID, "mode=755,size=1m")
    for name in USUAL:
        _put_node(f"/dev/{name}", f"{target}/{name}", make_nodes)
    for device in devices:
        path = os.path.normpath(device)
        if not path.startswith("/dev/"):
            raise ValueError(f"{device} is not below /dev")
        _put_node(path, target + path[4:], make_nodes)
    for name, link in _LINKS.items():
        os.symlink(link, f"{target}/{name}")
    os.mkdir(f"{target}/pts")
    # The machine has 4096 terminals in total; limit how many one Pod can take.
    options = "newinstance,ptmxmode=0666,mode=620,max=512"
    linux.mount("devpts", f"{target}/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, options)
    os.mkdir(f"{target}/shm")
    linux.move_mount(shm, f"{target}/shm")


def _put_node(source: str, target: str, make_nodes: bool) -> None:
    found = os.stat(source)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if stat.S_ISDIR(found.st_mode):
        os.mkdir(target)
        linux.bind(source, target)
        return
    if make_nodes and stat.S_ISCHR(found.st_mode):
        os.mknod(target, stat.S_IFCHR | 0o600, found.st_rdev)
        os.chmod(target, stat.S_IMODE(found.st_mode))
        os.chown(target, found.st_uid, found.st_gid)
        return
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    linux.bind(source, target)
