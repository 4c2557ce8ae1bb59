"""What another Unix user of the machine tries, as a program of its own: given a directory and pids, prints JSON.

    python -m tests.attacks.unix_user.stranger DIRECTORY PID...

Standard library only, because that user may not be able to read anything else.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import stat
import struct
import sys
from typing import Any

_READ_LOCK = struct.Struct("hhqqi4x").pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
_PTRACE_SEIZE = 0x4206


def look_around(directory: str) -> dict[str, list[str]]:
    """What below the directory can be read, written, locked or connected to."""
    found: dict[str, list[str]] = {"read": [], "written": [], "locked": [], "connected": []}
    for folder, _, names in os.walk(directory):
        if os.access(folder, os.W_OK):
            found["written"].append(folder)
        for name in names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISSOCK(mode):
                found["connected"] += [path] if connects(path) else []
            elif stat.S_ISREG(mode):
                found["read"] += [path] if os.access(path, os.R_OK) else []
                found["written"] += [path] if os.access(path, os.W_OK) else []
                found["locked"] += [path] if locks(path) else []
    return found


def connects(path: str) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as sock:
            try:
                sock.connect(path)
            except OSError as error:
                if error.errno in (errno.EPROTOTYPE, errno.ECONNREFUSED):
                    continue
                return False
            return True
    return False


def locks(path: str) -> bool:
    """A lock on a file that others wait for stops them, and reading it is enough to take one."""
    try:
        with open(path, "rb") as file:
            fcntl.fcntl(file, fcntl.F_OFD_GETLK, _READ_LOCK)
            return True
    except OSError:
        return False


def list_abstract_sockets() -> list[str]:
    """Names without a file: whoever knows one may connect."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        return [line.split()[-1] for line in table if line.split()[-1].startswith("@")]


def touch(pid: int) -> list[str]:
    """What of a process can be reached."""
    reached = []
    for name in ("environ", "mem", "maps", "stack"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                reached += [name] if file.read(1) else []
        except OSError:
            continue
    for name in ("root", "cwd", "fd"):
        try:
            os.listdir(f"/proc/{pid}/{name}")
            reached.append(name)
        except OSError:
            continue
    try:
        os.kill(pid, 0)
        reached.append("signal")
    except PermissionError:
        pass
    if ctypes.CDLL(None, use_errno=True).ptrace(_PTRACE_SEIZE, pid, 0, 0) == 0:
        reached.append("ptrace")
    return reached


def main(directory: str, *pids: str) -> dict[str, Any]:
    processes = {pid: touch(int(pid)) for pid in pids}
    return {**look_around(directory), "abstract": list_abstract_sockets(), "processes": processes}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
