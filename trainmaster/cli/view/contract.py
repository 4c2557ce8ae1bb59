"""What shows a job, and what it is given to show. `Plain` and `Live` implement `View`; `session` drives it."""

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
    """Who says it; "" where only one can."""


class FollowingView(Protocol):
    @property
    def can_ask(self) -> bool:
        """Whether somebody is there to answer a question."""
        ...

    def open(self) -> None:
        """The job exists; from now on it is shown."""
        ...

    def print_line(self, line: Shown) -> None: ...

    def print_news(self, news: JobNews) -> None: ...

    def refresh(self) -> None:
        """Something changed, or a second has passed."""
        ...

    def close(self) -> None:
        """Everything as it was found. May be called twice."""
        ...
