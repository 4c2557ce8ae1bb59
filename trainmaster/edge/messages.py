"""Requests as connections deliver them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypedDict

if TYPE_CHECKING:
    from trainmaster.edge.bodies import BodyChannel
    from trainmaster.edge.gatekeeper import Visitor

NOT_REPEATED: Mapping[str, Sequence[str]] = {}


class PeerCertificate(TypedDict, total=False):
    """The parts of a verified client certificate that are used, as in `ssl.SSLSocket.getpeercert`."""

    subject: tuple[tuple[tuple[str, str], ...], ...]
    notAfter: str


class IncomingRequest:
    """One request. Header names are lower case; repeated headers are joined with ", "."""

    __slots__ = ("body", "headers", "keep_alive", "method", "peer", "repeated", "target", "visitor")

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.repeated = NOT_REPEATED
        """All values, in order, of headers that occurred more than once."""
        self.body = body
        self.keep_alive = True
        self.peer: PeerCertificate | None = None
        """The client certificate as decoded by `ssl`, verified against our CA; None without one."""
        self.visitor: Visitor | None = None
        """The connection that it arrived on."""

    def repeat(self, body: bytes) -> Self:
        """The next request of a connection that sent the same head again."""
        again = type(self)(self.method, self.target, self.headers, body)
        again.repeated = self.repeated
        return again

    def values(self, name: str) -> list[str]:
        """All values of a header that may be repeated."""
        many = self.repeated.get(name)
        if many is not None:
            return list(many)
        one = self.headers.get(name)
        return [] if one is None else [one]


class ArrivingRequest(IncomingRequest):
    """A request whose body is still arriving and is read from the channel."""

    __slots__ = ("channel", "version")

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        super().__init__(method, target, headers, body)
        self.channel: BodyChannel | None = None
        self.version = "1.1"
