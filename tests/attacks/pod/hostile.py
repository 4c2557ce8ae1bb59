"""What hostile Pods share: programs that they run, and claims to run them on."""

from __future__ import annotations

import textwrap

from tests.attacks.site import Caller, unique
from tests.support.clients import JSON

EXCHANGE = textwrap.dedent(
    """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    one, other = (os.fsencode(path) for path in sys.argv[1:3])
    open(sys.argv[3], "w").close()
    while not os.path.exists(sys.argv[4]):
        for _ in range(2000):
            if libc.renameat2(-100, one, -100, other, 2):
                sys.exit(os.strerror(ctypes.get_errno()))
    """
)
"""Exchanges two paths (RENAME_EXCHANGE) for ever: from when the third path exists until the fourth does."""


def make_claim(caller: Caller, size: str = "1Gi") -> str:
    name = unique("claim")
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    caller.kube.create(caller.path("persistentvolumeclaims"), body)
    return name


def mount_claim(claim: str) -> list[JSON]:
    """`volumes` of a Pod that has it under the name `data`."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def show_failure(pod: JSON) -> str:
    """Why a container did not run, from wherever the status says it."""
    found = []
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        for state in (status.get("state") or {}).values():
            found.append(f"{state.get('reason', '')} {state.get('message', '')}")
    return "\n".join(found)


WAYS = {
    "heap": """
held = []
for _ in range(100):
    held.append(bytearray(b"x" * (8 << 20)))
""",
    "memfd": """
import os
fd = os.memfd_create("m")
for _ in range(100):
    os.write(fd, b"x" * (8 << 20))
""",
    "shared memory": """
try:
    file = open("/dev/shm/x", "wb")
    for _ in range(100):
        file.write(b"x" * (8 << 20))
except OSError:
    pass
held = [bytearray(b"x" * (8 << 20)) for _ in range(60)]
""",
    "locked": """
import ctypes
ctypes.CDLL(None).mlockall(3)
held = []
for _ in range(100):
    held.append(bytearray(b"x" * (8 << 20)))
""",
    "System V": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(60):
    at = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 8 << 20)
""",
    "System V, detached": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(60):
    at = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 8 << 20)
    libc.shmdt(ctypes.c_void_p(at))
""",
}
"""Programs that take more than 256Mi of memory, and hold it."""

FORKS = {
    "processes": """
while n < 2000:
    try:
        if not os.fork():
            time.sleep(20)
            os._exit(0)
    except OSError:
        break
    n += 1
""",
    "threads": """
while n < 2000:
    try:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    except RuntimeError:
        break
    n += 1
""",
    "orphans": """
while n < 2000:
    try:
        if not os.fork():
            os.setsid()
            try:
                os.fork()
            except OSError:
                pass
            time.sleep(20)
            os._exit(0)
    except OSError:
        break
    n += 1
""",
}
"""Programs that have as many processes as they can get, and count them; at most so many that a machine bears it."""


def build_forks(way: str) -> str:
    return f"import os, threading, time\nn = 0\n{FORKS[way]}\nprint('had', n, flush=True)\n"
