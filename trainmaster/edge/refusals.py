"""Refusals of the edge, before they are put into a port's format."""

from __future__ import annotations


class FramingError(Exception):
    """Data on an upgraded connection violates its protocol."""


class EdgeRefusal(Exception):
    """Why a request or connection is refused. Each port answers in its own format."""

    def __init__(self, code: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        """The Kubernetes reason: BadRequest, Timeout, ..."""
        self.message = message
        self.retry_after = retry_after
