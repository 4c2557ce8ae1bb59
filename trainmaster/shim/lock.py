"""The lock of a Pod's shim: of two shims for one Pod only one proceeds."""

from __future__ import annotations

import fcntl
import os

from trainmaster.shim.protocol import Paths


class Held(Exception):
    """Another shim holds the Pod's lock."""


def take_lock(paths: Paths) -> int:
    """Takes a record lock: children do not inherit it, and the kernel releases it however the process ends."""
    handle = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise Held("the Pod has a shim already") from None
    return handle
