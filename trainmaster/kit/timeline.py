"""Decides whether stored times have expired, independently of changes to the wall clock.

    now.since(uid, "finished", "2026-01-31T23:59:59Z")          seconds, on boot time, never below 0
    now.left(uid, "finished", "2026-01-31T23:59:59Z", 3600)     seconds until the hour is over; 0 or less: it is due
    now.wall                                                    for what is stored and shown, never for deciding

A `Timeline` lives as long as the process. When it first sees a stored time it anchors it to boot time: anchor = boot
now - max(0, wall now - stored). From then on only boot time counts, so setting the wall clock, in either direction,
neither hastens nor delays anything. After a restart times are anchored anew from the wall clock. A stored time in the
future (the wall clock was set back since, or a server's runs ahead) starts when it is first seen.

A time is identified by its owner (an object's uid), its purpose (any word, the same in every pass) and its text;
another text is another time. A `Now` is one reading of the clock, for one pass over one subject. Times that a complete
pass did not ask for are forgotten, so whoever depends on a time must ask for it in every pass.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Generic, TypeVar

from trainmaster.kit.clock import Clock, parse_time

K = TypeVar("K", bound=Hashable)

_Anchors = dict[tuple[str, str], tuple[str, float]]
"""(owner, purpose) -> (stored text, boot time)."""


class Now:
    """The time of one pass. The same question gets the same answer throughout the pass."""

    __slots__ = ("_asked", "_boot", "_known", "wall")

    def __init__(self, wall: datetime, boot: float = 0.0, known: _Anchors | None = None) -> None:
        self.wall = wall
        self._boot = boot
        self._known: _Anchors = {} if known is None else known
        self._asked: _Anchors = {}

    @property
    def asked(self) -> _Anchors:
        return self._asked

    def since(self, whose: str, what: str, stored: str) -> float:
        """Seconds since the stored RFC 3339 time. Raises ValueError if it is malformed."""
        key = (whose, what)
        anchor = self._asked.get(key) or self._known.get(key)
        if anchor is None or anchor[0] != stored:
            passed = (self.wall - parse_time(stored)).total_seconds()
            anchor = (stored, self._boot - max(0.0, passed))
        self._asked[key] = anchor
        # Rounded, so that float errors do not make something due wait for another fraction of a nanosecond.
        return round(self._boot - anchor[1], 6)

    def left(self, whose: str, what: str, stored: str, seconds: float) -> float:
        """Seconds until the period that began at the stored time is over; 0 or less if it is."""
        return seconds - self.since(whose, what, stored)


class Timeline(Generic[K]):
    """The stored times that this process has seen, grouped by the subject of the passes that asked for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchors: dict[K, _Anchors] = {}

    def __len__(self) -> int:
        """The number of subjects with known times."""
        return len(self._anchors)

    def begin_pass(self, subject: K) -> Now:
        """Starts a pass over a subject; pass the result to `end_pass` afterwards."""
        return Now(self._clock.now(), self._clock.boot(), self._anchors.get(subject))

    def end_pass(self, subject: K, now: Now, *, complete: bool = True) -> None:
        """Remembers the times that the pass asked for. If it was `complete`, all others of the subject are
        forgotten."""
        asked = now.asked
        if not complete:
            if asked:
                self._anchors[subject] = {**self._anchors.get(subject, {}), **asked}
        elif asked:
            self._anchors[subject] = asked
        else:
            self._anchors.pop(subject, None)
