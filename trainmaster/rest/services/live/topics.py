"""The topics of one stream, and its id: the positions in all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.services.jobs import build_reference
from trainmaster.rest.services.live.log_cursor import ID_LENGTH, refuse_id

MOST_TOPICS = 16
_OVER = "!"
"""The position in a topic that has ended with a problem."""
_WHOLE = ("jobs", "machine")
_OF_JOB = ("job", "log", "usage")
_FORMS = (*_WHOLE, *(f"{what}:NAMESPACE/{name}" for what in _OF_JOB for name in ("NAME", "KIND/NAME")))
_JOB = re.compile(
    rf"(?P<what>{'|'.join(_OF_JOB)}):"
    r"(?P<namespace>[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/((?P<kind>[A-Za-z]{1,63})/)?"
    r"(?P<name>[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)"
)


@dataclass(frozen=True, slots=True)
class Topic:
    text: str
    """As it was asked for."""
    what: str
    """`jobs`, `machine`, `job`, `log` or `usage`."""
    namespace: str = ""
    reference: str = ""
    """NAME or KIND/NAME, see `services.jobs.build_reference`."""


def parse_topics(texts: Sequence[str]) -> list[Topic]:
    """Each once. Raises Problem 422, which names all that are wrong."""
    if not texts:
        raise _refuse(["is needed: say what to follow"])
    if len(texts) > MOST_TOPICS:
        raise _refuse([f"stands {len(texts)} times, and a stream has at most {MOST_TOPICS}"])
    topics: dict[str, Topic] = {}
    errors: list[str] = []
    for text in texts:
        found = _JOB.fullmatch(text)
        if text in _WHOLE:
            topics[text] = Topic(text, text)
        elif found is None:
            errors.append(f"{text[:100]!r} is no topic")
        else:
            reference = build_reference(found["name"], found["kind"])
            topics[text] = Topic(text, found["what"], found["namespace"], reference)
    if errors:
        raise _refuse(errors)
    return list(topics.values())


def _refuse(errors: Sequence[str]) -> Problem:
    known = ", ".join(_FORMS)
    return invalid([FieldProblem(error, parameter="topic") for error in errors], hint=f"the topics are {known}")


class TopicPositions:
    """By slot, how far a client is. A topic has one slot or more."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)

    def get(self, slot: str) -> str:
        return self._known.get(slot, "")

    def is_over(self, slot: str) -> bool:
        return self._known.get(slot) == _OVER

    def note(self, slot: str, position: str) -> None:
        self._known[slot] = position

    def end(self, slot: str) -> None:
        self._known[slot] = _OVER

    def dump(self) -> str:
        return "~".join(f"{slot}={position}" for slot, position in self._known.items())


def parse_positions(text: str, topics: Sequence[Topic]) -> TopicPositions:
    """Raises Problem 422 for an invalid id; the positions themselves are checked by their topics."""
    if len(text) > ID_LENGTH or not text.isascii() or not text.isprintable():
        raise refuse_id()
    known: dict[str, str] = {}
    asked = {topic.text for topic in topics}
    for part in text.split("~") if text else ():
        slot, equals, position = part.partition("=")
        if not equals or slot in known or not position:
            raise refuse_id()
        if slot.rstrip("+") in asked:
            known[slot] = position
    return TopicPositions(known)
