"""Instructions of the state machine for the agent, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.meta import Fields
from trainmaster.node.machine.model import ProbeKind, ProbeSpec
from trainmaster.node.machine.state import PodState


@dataclass(frozen=True, slots=True)
class Start:
    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Asks the container's main process to terminate."""

    container: str
    number: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kills the container's whole process tree."""

    container: str


@dataclass(frozen=True, slots=True)
class Hook:
    container: str
    attempt: int
    kind: str
    """postStart or preStop."""
    handler: Fields
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    container: str
    attempt: int
    kind: ProbeKind
    spec: ProbeSpec


@dataclass(frozen=True, slots=True)
class Notice:
    """Tells the programs, through the notice file, that they have `seconds` left."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EventNote:
    """An event about the Pod."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Confirm:
    """Nothing of the Pod runs any more: the object may be deleted."""


Instruction: TypeAlias = Start | Signal | Kill | Hook | Probe | Notice | EventNote | Confirm


@dataclass(frozen=True, slots=True)
class Step:
    state: PodState
    instructions: tuple[Instruction, ...] = ()
    wake_after: float | None = None
    """Seconds until time alone may change the result."""
