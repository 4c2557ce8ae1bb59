"""The current actor. Writes are synchronous, so one variable is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

SERVER = "server"
"""The API server itself: garbage collection, namespaces."""


class Acting:
    def __init__(self) -> None:
        self.who = SERVER

    @contextmanager
    def as_(self, who: str) -> Iterator[None]:
        before, self.who = self.who, who
        try:
            yield
        finally:
            self.who = before
