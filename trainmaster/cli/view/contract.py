"""The protocol of views. `Plain` and `Live` implement `View`; `session` calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainmaster.cli.view.model import JobNews


@dataclass(frozen=True, slots=True)
class Shown:
    """A line that a rank printed."""

    attempt: int
    job: str
    rank: int
    text: str
    prefix: str = ""
    """The rank that printed it; "" if there is only one."""


class FollowingView(Protocol):
    @property
    def can_ask(self) -> bool:
        """Whether there is a user who can answer a question."""
        ...

    def open(self) -> None:
        """Called when the job exists, before anything is shown."""
        ...

    def print_line(self, line: Shown) -> None: ...

    def print_news(self, news: JobNews) -> None: ...

    def refresh(self) -> None:
        """Called when something has changed, and every second."""
        ...

    def close(self) -> None:
        """Restores the terminal. May be called twice."""
        ...
