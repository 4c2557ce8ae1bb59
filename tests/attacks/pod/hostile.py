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
