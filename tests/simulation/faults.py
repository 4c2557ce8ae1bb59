"""The parameters of a seed: how plans are applied, and the probability of each fault.

Each fault is disabled in some seeds, so that a violation can be attributed to the others. In a seed, crashes hit only
some sites, and later writes of a site less often than the first, so that rare writes are hit too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

EMBEDDED, OPERATOR = "embedded", "operator"

CRASH_BEFORE, CRASH_AFTER = "crash before", "crash after"
REFUSED, LOST_ANSWER, STALE = "refused", "lost answer", "stale view"
FULL = "full disk"
ARCHIVE_SITE = "retention: archive jobs"
"""Not a write to the API server, but one that must precede it."""
STEP_SITE = "job: take the next step"
"""Not a write: a pass over a large Job is interrupted."""
FAULTS = {
    EMBEDDED: (CRASH_BEFORE, CRASH_AFTER),
    OPERATOR: (CRASH_BEFORE, CRASH_AFTER, REFUSED, LOST_ANSWER, STALE),
}
"""The faults that can hit a write, by mode."""


def list_faults(site: str) -> tuple[str, ...]:
    """The faults that can hit a site, which has its mode as a prefix."""
    mode, _, name = site.partition(" ")
    if name == STEP_SITE:
        return (CRASH_BEFORE,)
    return (CRASH_BEFORE, CRASH_AFTER, FULL) if name == ARCHIVE_SITE else FAULTS[mode]


@dataclass(frozen=True, slots=True)
class FaultProfile:
    mode: str
    """EMBEDDED: a plan is one transaction on the current state. OPERATOR: in order, through a lagging cache."""
    crash: float
    """Probability of a crash before or after the first write of a fragile site."""
    crashes: int
    """Maximum number of crashes at writes in one run."""
    refuse: float
    lose: float
    server_crashes: int
    """Crashes at random times, in addition to those at writes."""
    drop: float
    """Chance that a notice of a change never reaches the queue."""
    repeat: float
    delay: float
    """Maximum delay of a notice or a watch event in seconds."""
    stall: float
    """Chance that a watch falls far behind at an event (operator)."""
    cut: float
    """Chance that a watch breaks at an event (operator)."""
    slow_commit: float
    """Chance that a commit takes up to two seconds."""
    clock_steps: int
    hasty: bool
    """Crashes follow each other quickly, also during recovery."""
    full: float = 0.0
    """Chance that the history's disk has no space at a write."""
    large: bool = False
    """Jobs are handled as if they had thousands of Pods (`interrupting`)."""


def draw_weather(seed: int, random_: random.Random) -> FaultProfile:
    def maybe(value: float, share: float = 0.6) -> float:
        return value if random_.random() < share else 0.0

    return FaultProfile(
        mode=EMBEDDED if seed % 2 else OPERATOR,
        crash=maybe(0.7, 0.75),
        crashes=random_.choice((1, 2, 4, 6)),
        refuse=maybe(0.3),
        lose=maybe(0.3),
        server_crashes=random_.choice((0, 0, 1, 2)),
        drop=maybe(0.2, 0.25),
        repeat=maybe(0.2, 0.4),
        delay=random_.choice((0.0, 0.002, 0.05, 1.0)),
        stall=maybe(0.05, 0.5),
        cut=maybe(0.02, 0.4),
        slow_commit=maybe(0.05, 0.4),
        clock_steps=random_.choice((0, 0, 1, 2, 3)),
        hasty=random_.random() < 0.3,
        full=maybe(0.5, 0.5),
        large=random_.random() < 0.5,
    )
