"""What a listed difference consists of.

Patterns are shell patterns in which a bracket stands for itself, except in the names of cases. Cases are VERSION/NAME.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from tests.golden.comparison import Difference, matches


@dataclass(frozen=True, slots=True)
class Field:
    """A field that differs, is missing or is there in addition."""

    cases: str
    kind: str
    path: str
    reason: str
    moment: str = "*"
    """running, end, events, the name of a step, ...; see the case's `acts`."""
    name: str = "*"
    """Of the object, as masked."""
    begins: bool = False
    """Our text begins with upstream's, or it is not this difference."""
    lacks: str = ""
    """Of an event: all of our texts are upstream's, and those of upstream's that are missing match this pattern."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Several are written in one, with bars between them."""
        return tuple(self.path.split(" | "))

    def is_about(self, case: str) -> bool:
        return fnmatch.fnmatchcase(case, self.cases)

    def covers(self, case: str, difference: Difference) -> bool:
        return (
            self.is_about(case)
            and matches(self.moment, difference.moment)
            and matches(self.kind, difference.kind)
            and matches(self.name, difference.name)
            and any(matches(path, difference.path) for path in self.paths)
            and (not self.begins or difference.ours.startswith(difference.upstream.removesuffix('"')))
            and (not self.lacks or self._is_all_else_equal(difference))
        )

    def _is_all_else_equal(self, difference: Difference) -> bool:
        theirs, ours = (_split_texts(text) for text in (difference.upstream, difference.ours))
        return ours <= theirs and all(matches(self.lacks, text) for text in theirs - ours)


def _split_texts(shown: str) -> set[str]:
    """The texts of an event, as a difference shows them: `Normal 1 x one; 2 x another`."""
    return set() if shown == "(none)" else set(shown.partition(" ")[2].split("; "))


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that upstream lets in, and that then hangs or does something silly. Ours says no at once."""

    case: str
    texts: tuple[str, ...]
    """All of them stand in our answer."""
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A manifest or a change that gets another answer from us. No texts: we let it in."""

    case: str
    """VERSION/NAME in the refused manifests."""
    texts: tuple[str, ...]
    reason: str
