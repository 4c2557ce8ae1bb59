"""Finds the checkpoint that a person means by a name or a step."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.history.checkpoints.model import Checkpoint

STEP_SIGN = "@"


class NoCheckpoint(Exception):
    """A sentence for people."""


def choose(items: Sequence[Checkpoint], wanted: str) -> Checkpoint:
    """`items`: the newest first. `wanted`: a name, `@STEP`, or "" for the newest complete one. Of several with a step
    the newest complete one. Raises NoCheckpoint."""
    if not wanted:
        found = [item for item in items if item.complete and item.place == "checkpoints"]
        found = found or [item for item in items if item.complete]
        if not found:
            raise NoCheckpoint("it has no complete checkpoint")
        return found[0]
    if not wanted.startswith(STEP_SIGN):
        named = next((item for item in items if item.name == wanted), None)
        if named is None:
            raise NoCheckpoint(f"it has no checkpoint {wanted[:200]!r}")
        return named
    number = wanted.removeprefix(STEP_SIGN)
    if not (number.isascii() and number.isdigit() and len(number) <= 15):
        raise NoCheckpoint(f"{wanted[:200]!r} is no step: write @ and a number, such as @400")
    of_step = [item for item in items if item.step == int(number)]
    if not of_step:
        raise NoCheckpoint(f"it has no checkpoint of step {int(number):,}")
    return next((item for item in of_step if item.complete), of_step[0])
