"""Fair sharing of one event loop's time between users.

While several users send requests, each may use at most a share of the loop's time. The time that each request takes is
recorded, and further requests of a user who exceeds the share are delayed, spaced so that the average stays at the
share. A user who is the only one sending requests is never delayed, nor is one who has not used up a burst of time.
Nothing is refused here; the caller refuses requests that would have to wait too long.

    wait = shares.plan(name)                     # seconds; 0: now
    ...
    shares.note(name, seconds, waited=wait > 0)  # how long the request took
"""

from __future__ import annotations

import math

from trainmaster.kit.clock import Clock

_BURST_SECONDS = 0.03
"""Time that may be used without delay."""
_ALONE_SECONDS = 1.0
"""A user counts as the only one when no other has sent a request for this long."""
_GUESS_SECONDS = 0.002
"""Estimated time of a user's first request."""
LONGEST_SECONDS = 10.0
"""The longest delay; a request that would have to wait longer is not scheduled."""
_MOST_SECONDS = 1.0
"""The longest delay that a single request can cause, however long it took."""
_LOOK_EVERY = 1024


class _Turns:
    __slots__ = ("free_at", "guess")

    def __init__(self, now: float) -> None:
        self.free_at = now
        """When the time used so far has been made up for."""
        self.guess = _GUESS_SECONDS


class LoopShares:
    def __init__(self, clock: Clock, share: float) -> None:
        """`share` is the fraction of the loop's time for one user, between 0 and 1."""
        self._clock = clock
        self._share = share
        self._turns: dict[str, _Turns] = {}
        self._last = ("", -math.inf)
        self._last_other = -math.inf
        """When a user other than `_last` last sent a request."""
        self._plans = 0

    def plan(self, name: str) -> float:
        """Seconds to wait before serving the request. If it is delayed, `note` must be told so. A delay of more than
        LONGEST_SECONDS means that the request was not scheduled."""
        now = self._clock.monotonic()
        self.note_arrival(name, now)
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

    def note_arrival(self, name: str, now: float) -> None:
        """Records a request, also of users who are never delayed."""
        if self._last[0] != name:
            self._last_other = self._last[1]
        self._last = (name, now)

    def note(self, name: str, seconds: float, *, waited: bool) -> None:
        """Records how long a request took."""
        turns = self._turns.get(name)
        if turns is None:
            return
        now, taken = self._clock.monotonic(), min(seconds, _MOST_SECONDS * self._share)
        if waited:
            # The estimate was charged by `plan`.
            turns.free_at = max(turns.free_at, now) + (taken - turns.guess) / self._share
        else:
            # The debt is capped at the burst plus this request, so that a user who was alone does not wait long once
            # others come.
            most = now + (_BURST_SECONDS + taken) / self._share
            turns.free_at = min(max(turns.free_at, now) + taken / self._share, max(turns.free_at, most))
        turns.guess += (taken - turns.guess) / 8

    def _forget(self, now: float) -> None:
        self._plans += 1
        if self._plans % _LOOK_EVERY == 0:
            self._turns = {name: turns for name, turns in self._turns.items() if turns.free_at > now}
