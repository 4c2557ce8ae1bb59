"""Whose turn it is on one event loop: while several ask, each may use a share of its time, and who used more waits.

A tenant that asks as fast as it is let costs the others more by the time that its requests take than by their number.
So what a request took is noted, and the next ones of the same name get their turns one after the other, as far apart
as keeps the mean at the share. Nobody waits who asks alone, or who has not used a burst of time within the last
moments. Nothing is refused here except what would wait too long.

    wait = shares.plan(name)       # seconds; 0: now
    ...
    shares.note(name, seconds)     # what it took; and whether it had waited
"""

from __future__ import annotations

import math

from trainmaster.kit.clock import Clock

_BURST_SECONDS = 0.03
"""So much time may be used at once."""
_ALONE_SECONDS = 1.0
"""Whoever asked last is no neighbour any more after that."""
_GUESS_SECONDS = 0.002
"""What a request takes, until it is known."""
LONGEST_SECONDS = 10.0
"""Nobody waits longer for a turn."""
_MOST_SECONDS = 1.0
"""One request makes the next one of its name wait no longer, whatever it took."""
_LOOK_EVERY = 1024


class _Turns:
    __slots__ = ("free_at", "guess")

    def __init__(self, now: float) -> None:
        self.free_at = now
        """When what was used so far is paid for."""
        self.guess = _GUESS_SECONDS


class LoopShares:
    def __init__(self, clock: Clock, share: float) -> None:
        """`share`: of the loop's time, for one name; between 0 and 1."""
        self._clock = clock
        self._share = share
        self._turns: dict[str, _Turns] = {}
        self._last = ("", -math.inf)
        self._last_other = -math.inf
        """When somebody else than `_last` asked."""
        self._plans = 0

    def plan(self, name: str) -> float:
        """How long to wait. Who has to wait has its turn then, and `note` is told so; more than LONGEST_SECONDS is no
        turn."""
        now = self._clock.monotonic()
        self.hear(name, now)
        turns = self._turns.get(name)
        if turns is None:
            turns = self._turns[name] = _Turns(now)
            self._forget(now)
        wait = turns.free_at - _BURST_SECONDS / self._share - now
        if wait <= 0 or now - self._last_other > _ALONE_SECONDS:
            return 0.0
        if wait <= LONGEST_SECONDS:
            turns.free_at += turns.guess / self._share
        return wait

    def hear(self, name: str, now: float) -> None:
        """Somebody asks, who may be one that never waits."""
        if self._last[0] != name:
            self._last_other = self._last[1]
        self._last = (name, now)

    def note(self, name: str, seconds: float, *, waited: bool) -> None:
        turns = self._turns.get(name)
        if turns is None:
            return
        now, taken = self._clock.monotonic(), min(seconds, _MOST_SECONDS * self._share)
        if waited:
            # What was guessed is paid for.
            turns.free_at = max(turns.free_at, now) + (taken - turns.guess) / self._share
        else:
            # Who was alone owes no more for it than one request, once others come.
            most = now + (_BURST_SECONDS + taken) / self._share
            turns.free_at = min(max(turns.free_at, now) + taken / self._share, max(turns.free_at, most))
        turns.guess += (taken - turns.guess) / 8

    def _forget(self, now: float) -> None:
        self._plans += 1
        if self._plans % _LOOK_EVERY == 0:
            self._turns = {name: turns for name, turns in self._turns.items() if turns.free_at > now}
