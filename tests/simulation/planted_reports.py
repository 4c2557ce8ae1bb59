"""Bugs around what programs report, to plant into the real code (see `planted.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.planted import Planted
from trainmaster.api.training import reports
from trainmaster.controllers.trainjob import attempts


def _never(original: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: ""


def _trust_the_clock(original: Callable[..., Any]) -> Callable[..., Any]:
    """Stores the time that the program says, as it is."""
    return lambda report, trainjob, now, began="": original(report, trainjob, now)


REPORT_BUGS: tuple[Planted, ...] = (
    Planted(
        "shows what an earlier attempt said",
        ("I19",),
        patches=((attempts, "find_beginning", _never),),
        seeds=300,
        first=79,
    ),
    Planted(
        "takes what was said in the second of its start for old",
        ("I19",),
        patches=((reports, "decide", _trust_the_clock),),
        seeds=120,
        first=15,
    ),
)
