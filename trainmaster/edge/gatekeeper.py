"""Limits the number of connections: per address before authentication, per user after it, and in total.

An unauthenticated connection ("stranger") is never refused. It displaces the oldest one from the same address, or, at
the total limit, the oldest one from the address with the most. So a flood displaces itself, and a client with
credentials gets through, even from the same address. Authenticated connections are never displaced; users are refused
at their own limit, and together they leave an eighth of all connections free. Administrators are counted, but never
refused.

One gatekeeper serves all ports of a process, because they share its descriptors. Bookkeeping only; for one event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trainmaster.edge.addresses import TrustedProxies, build_address_group
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.refusals import EdgeRefusal

_KEPT_FREE = 8
"""One in this many connections is reserved for strangers and administrators."""


def _nothing() -> None:
    return None


class Visitor:
    """A connection, from the moment it is accepted."""

    __slots__ = ("address", "end", "group", "is_privileged", "is_stranger", "port", "user")

    def __init__(self, address: str = "", port: int = 0, end: Callable[[], None] = _nothing) -> None:
        self.address = address
        self.port = port
        self.group = build_address_group(address)
        self.end = end
        """Closes the connection immediately."""
        self.is_stranger = True
        self.user = ""
        self.is_privileged = False

    def forget_end(self) -> None:
        """Called when the connection is closed."""
        self.end = _nothing


class Gatekeeper:
    def __init__(self, limits: EdgeLimits, *, descriptors: int = 0) -> None:
        """`descriptors`: how many files the process may have open; 0 for no limit."""
        self._limits = limits
        most = min(limits.connections, max(descriptors // 2, 16)) if descriptors else limits.connections
        self.most = most
        self._most_known = most - most // _KEPT_FREE
        self.proxies = TrustedProxies(limits.trusted_proxies)
        self._strangers: dict[str, dict[Visitor, None]] = {}
        """By address, oldest first."""
        self._visitors: set[Visitor] = set()
        self._users: Counter[str] = Counter()
        self._known = 0
        """The number of authenticated connections, without administrators."""
        self.displaced = 0
        """How many connections were closed in favour of others."""

    def __len__(self) -> int:
        return len(self._visitors)

    def count_strangers(self) -> int:
        return sum(map(len, self._strangers.values()))

    def admit(self, visitor: Visitor) -> bool:
        """Adds a connection, closing another one if necessary. False if there is no room."""
        if self.proxies.trusts(visitor.address):
            # A proxy's connections carry requests of many clients.
            visitor.is_stranger = False
            visitor.is_privileged = True
        else:
            mine = self._strangers.get(visitor.group, {})
            if len(mine) >= self._limits.connections_per_address:
                self._displace(visitor.group)
        if len(self._visitors) >= self.most and not self.make_room():
            return False
        self._visitors.add(visitor)
        if visitor.is_stranger:
            self._strangers.setdefault(visitor.group, {})[visitor] = None
        return True

    def make_room(self) -> bool:
        """Closes the oldest stranger from the address with the most; False if there are none."""
        group = max(self._strangers, key=lambda one: len(self._strangers[one]), default=None)
        if group is None:
            return False
        self._displace(group)
        return True

    def recognise(self, visitor: Visitor, user: str, *, is_privileged: bool) -> None:
        """Records that a visitor has authenticated. Raises EdgeRefusal if the user has too many connections."""
        if visitor.user == user or visitor not in self._visitors or self.proxies.trusts(visitor.address):
            return
        if not is_privileged:
            self._check_known(visitor, user)
        self._forget(visitor)
        visitor.is_stranger = False
        visitor.user, visitor.is_privileged = user, is_privileged
        self._visitors.add(visitor)
        if not is_privileged:
            self._users[user] += 1
            self._known += 1

    def _check_known(self, visitor: Visitor, user: str) -> None:
        limit = self._limits.connections_per_user
        if self._users[user] >= limit:
            text = f"you have {limit} open connections, and more are not taken (limits.connections_per_user)"
            raise EdgeRefusal(429, "TooManyRequests", text, retry_after=1)
        counted = not visitor.is_stranger and not visitor.is_privileged
        if self._known - counted >= self._most_known:
            text = f"{self._known} connections are open, and more are not taken (limits.connections)"
            raise EdgeRefusal(429, "TooManyRequests", text, retry_after=1)

    def remove(self, visitor: Visitor) -> None:
        """Removes a closed connection; harmless if repeated."""
        if visitor in self._visitors:
            self._forget(visitor)

    def _displace(self, group: str) -> None:
        oldest = next(iter(self._strangers[group]))
        self.displaced += 1
        self._forget(oldest)
        oldest.end()

    def _forget(self, visitor: Visitor) -> None:
        self._visitors.discard(visitor)
        mine = self._strangers.get(visitor.group)
        if mine is not None and visitor in mine:
            del mine[visitor]
            if not mine:
                del self._strangers[visitor.group]
        elif not visitor.is_stranger and not visitor.is_privileged:
            self._known -= 1
            self._users[visitor.user] -= 1
            if not self._users[visitor.user]:
                del self._users[visitor.user]
