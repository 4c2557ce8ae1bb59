"""How long to wait before the next attempt: exponential, capped, with jitter. Pure numbers; the caller waits.

Jitter only shortens, so that the cap is a promise. Without `ids` the sequence is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.kit.ids import Ids


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    first: float
    """Seconds before the second attempt."""
    cap: float
    factor: float = 2.0
    jitter: float = 0.0
    """The share of the delay that is random: 0.2 gives 80 to 100 % of it."""

    def delay(self, failures: int, ids: Ids | None = None) -> float:
        """Seconds to wait after that many failures in a row; 0 for none."""
        if failures <= 0:
            return 0.0
        # 2 ** 1024 does not fit a float; far below that every sensible cap is reached.
        delay = min(self.cap, self.first * self.factor ** min(failures - 1, 64))
        if ids is not None and self.jitter:
            delay *= 1.0 - self.jitter * ids.jitter()
        return delay


class Backoff:
    """The state of one retried thing."""

    __slots__ = ("_ids", "_policy", "failures")

    def __init__(self, policy: BackoffPolicy, ids: Ids | None = None) -> None:
        self._policy = policy
        self._ids = ids
        self.failures = 0

    def next(self) -> float:
        """Counts a failure and returns the seconds to wait."""
        self.failures += 1
        return self._policy.delay(self.failures, self._ids)

    def reset(self) -> None:
        self.failures = 0
