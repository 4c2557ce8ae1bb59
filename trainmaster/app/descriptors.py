"""How many files the server may have open: every connection is one, and shells start programs with room for 1,024."""

from __future__ import annotations

import resource
from contextlib import suppress

WANTED = 65_536
"""Not all that a machine allows: programs exist that walk through every possible descriptor, and jobs inherit this."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit as far as the hard one lets us; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WANTED if soft == resource.RLIM_INFINITY else soft
