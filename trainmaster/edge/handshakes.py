"""Whose TLS handshake begins next, when more connections come than handshakes are begun.

A handshake costs the event loop about a millisecond, which whoever is there already waits for. So only so many begin
per second. Addresses take turns, and of one address the newest goes first: a flood makes the oldest wait, and these
are the ones that the gatekeeper closes, while a caller who comes now is served now.

Pure bookkeeping; for one event loop.
"""

from __future__ import annotations

from trainmaster.edge.gatekeeper import Visitor


class HandshakeQueue:
    def __init__(self, *, per_second: float, burst: int) -> None:
        self._rate = per_second
        self._burst = float(burst)
        self._tokens = self._burst
        self._at = 0.0
        self._waiting: dict[str, dict[Visitor, None]] = {}
        """By address group in the order of their turns; of each the oldest first."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, visitor: Visitor) -> None:
        self._waiting.setdefault(visitor.group, {})[visitor] = None

    def remove(self, visitor: Visitor) -> None:
        """It has gone; one that does not wait is no error."""
        mine = self._waiting.get(visitor.group)
        if mine is not None and visitor in mine:
            del mine[visitor]
            if not mine:
                del self._waiting[visitor.group]

    def take(self, now: float) -> Visitor | None:
        """The next one to begin; None when nobody waits or it is too early (`find_wait`)."""
        self._refill(now)
        if not self._waiting or self._tokens < 1.0:
            return None
        self._tokens -= 1.0
        group = next(iter(self._waiting))
        mine = self._waiting.pop(group)
        visitor, _ = mine.popitem()
        if mine:
            self._waiting[group] = mine
        return visitor

    def find_wait(self, now: float) -> float | None:
        """Seconds until `take` has something to give; None when nobody waits."""
        if not self._waiting:
            return None
        self._refill(now)
        return max(0.0, 1.0 - self._tokens) / self._rate

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
