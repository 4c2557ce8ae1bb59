"""What the server asks of the kernel for itself: room for its connections, and to go last when memory runs out.

Every connection is an open file, and shells start programs with room for 1,024.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

WANTED = 65_536
"""Not all that a machine allows: programs exist that walk through every possible descriptor, and jobs inherit this."""
_OOM_SCORE = -500
"""Many small programs of jobs together can take all memory, and the kernel would end the largest process: ours. Not the
least there is: should the server itself be what grows, it must be possible to end it."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit as far as the hard one lets us; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WANTED if soft == resource.RLIM_INFINITY else soft


def go_last_without_memory() -> None:
    """Takes root. Zygote and shims inherit it; programs in Pods go first (`shim.birth`)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
