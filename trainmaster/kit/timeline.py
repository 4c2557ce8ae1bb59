"""How long ago a stored time is, and how much is left of a span that began with it: the only way to decide expiry.

    now.since(uid, "finished", "2026-01-31T23:59:59Z")          seconds, on boot time, never below 0
    now.left(uid, "finished", "2026-01-31T23:59:59Z", 3600)     seconds until the hour is over; 0 or less: it is due
    now.wall                                                    for what is stored and shown, never for deciding

A `Timeline` belongs to one process life. The first time that it is asked for a stored time it anchors it, once:
anchor = boot now - max(0, wall now - stored). From then on boot time alone counts, so setting the wall clock, in either
direction, neither hastens nor delays anything. After a restart times are anchored anew from the wall clock. A stored
time in the future (the wall clock was set back since, or a server's runs ahead) begins when it is first seen.

A time is known by who it belongs to (an object's uid), by what it is for (any word, the same in every pass) and by its
text: another text is another time. A `Now` is one look at the clock, for one pass over one subject. What a complete
pass did not ask for is forgotten, so memory goes with the objects; whoever depends on a time asks in every pass.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Generic, TypeVar

from trainmaster.kit.clock import Clock, parse_time

K = TypeVar("K", bound=Hashable)

_Anchors = dict[tuple[str, str], tuple[str, float]]
"""(whose, what for) to (stored text, boot time)."""


class Now:
    """This moment, in a pass. Asking twice gives the same answer."""

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
        """Seconds since the stored time (RFC 3339; ValueError when it is none)."""
        key = (whose, what)
        anchor = self._asked.get(key) or self._known.get(key)
        if anchor is None or anchor[0] != stored:
            passed = (self.wall - parse_time(stored)).total_seconds()
            anchor = (stored, self._boot - max(0.0, passed))
        self._asked[key] = anchor
        # Rounded as clocks are read: sums of floats must not keep what is due waiting for a fraction of a nanosecond.
        return round(self._boot - anchor[1], 6)

    def left(self, whose: str, what: str, stored: str, seconds: float) -> float:
        """Seconds until the span that began at the stored time is over; 0 or less when it is."""
        return seconds - self.since(whose, what, stored)


class Timeline(Generic[K]):
    """The stored times that one process has seen, by the subject of the passes that asked for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchors: dict[K, _Anchors] = {}

    def __len__(self) -> int:
        """Subjects of which times are known."""
        return len(self._anchors)

    def look(self, subject: K) -> Now:
        """The moment for a pass; give it back with `keep` when the pass is over."""
        return Now(self._clock.now(), self._clock.boot(), self._anchors.get(subject))

    def keep(self, subject: K, now: Now, *, complete: bool = True) -> None:
        """Remembers what the pass asked for. `complete`: the rest is forgotten, nobody depends on it any more."""
        asked = now.asked
        if not complete:
            if asked:
                self._anchors[subject] = {**self._anchors.get(subject, {}), **asked}
        elif asked:
            self._anchors[subject] = asked
        else:
            self._anchors.pop(subject, None)
