"""The trace of a run: a digest, the last steps as text, hits of faults, violations.

The digest verifies a replay: it covers every stored byte, every fault and every process, in order and with its virtual
time. The text is only rendered if needed.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from dataclasses import dataclass

from tests.simulation.loop import SimLoop
from trainmaster.api.conditions import list_conditions
from trainmaster.api.meta import Object
from trainmaster.apiserver import stored
from trainmaster.store.contract import Event, EventType

KEPT = 2000
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    """I1-I16 of the test plan."""
    message: str
    time: float

    def __str__(self) -> str:
        return f"{self.invariant} at {self.time:.3f} s: {self.message}"


class Trace:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16)
        self._lines: deque[tuple[float, str, str | Event]] = deque(maxlen=KEPT)
        self._until: list[tuple[float, str, str | Event]] | None = None
        """The steps before the first violation."""
        self.violations: list[Violation] = []
        self.hits: Counter[tuple[str, str]] = Counter()
        """(write site, fault) to how often."""

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def note(self, who: str, what: str) -> None:
        self._digest.update(f"{self._loop.now:.6f} {who} {what}\n".encode())
        self._lines.append((self._loop.now, who, what))

    def note_write(self, who: str, event: Event) -> None:
        record = event.record
        head = f"{self._loop.now:.6f} {who} {event.type.value} {record.revision} {record.bucket} {record.name}\n"
        self._digest.update(head.encode())
        self._digest.update(record.value)
        self._lines.append((self._loop.now, who, event))

    def violate(self, invariant: str, message: str) -> None:
        self.note("VIOLATION", f"{invariant}: {message}")
        if not self.violations:
            self._until = list(self._lines)
        self.violations.append(Violation(invariant, message, self._loop.now))

    def render(self, count: int = SHOWN) -> str:
        """The last steps up to the first violation: time, who, what."""
        lines = (self._until or list(self._lines))[-count:]
        return "\n".join(
            f"{time:11.3f} s  {who:<12} {what if isinstance(what, str) else describe(what)}"
            for time, who, what in lines
        )


def describe(event: Event) -> str:
    record = event.record
    verb = "deletes" if event.type is EventType.DELETE else "creates" if event.previous is None else "updates"
    return (
        f"{verb} {record.bucket} {record.name} rev {record.revision} {summarise(stored.parse(record.value))}".rstrip()
    )


def summarise(obj: Object) -> str:
    """A short summary of an object for the timeline."""
    status = obj.get("status") or {}
    spec = obj.get("spec") or {}
    facts = [f"uid {obj['metadata'].get('uid', '')[:8]}"]
    if "deletionTimestamp" in obj["metadata"]:
        facts.append("terminating")
    if spec.get("suspend"):
        facts.append("suspend")
    facts += [
        f"{key} {status[key]}" for key in ("phase", "restarts", "active", "failed", "succeeded") if status.get(key)
    ]
    facts += [str(entry.get("type")) for entry in list_conditions(obj) if entry.get("status") == "True"]
    if status.get("waiting"):
        facts.append(f"waiting: {status['waiting'].get('reason')}")
    if obj.get("kind") == "Event":
        facts.append(f"{obj.get('reason')}: {obj.get('message', '')[:60]}")
    return "[" + ", ".join(facts) + "]"
