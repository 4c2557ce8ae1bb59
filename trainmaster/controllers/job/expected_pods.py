"""Records which Pods of a Job must exist, so that a missing Pod is noticed and no Pod is counted twice.

Every Pod belongs to a slot: the completion index and attempt in an Indexed Job, otherwise a serial number. A slot is
open from the creation of its Pod until the Pod's end is counted. So each Pod is counted exactly once, regardless of the
order in which Pods end, disappear or remain; an open slot without a Pod means that somebody force-deleted the Pod.

The record (`ExpectedPods`) is an annotation, written together with the counts in the status, so the two always agree.
It is omitted if it can be derived from `status.active` (`_derive`), which is the case until a Pod fails or is deleted,
and for finished Jobs. It contains times only while a replacement waits for its back-off.

This relies on a view that shows the Job's last status also showing the Pods created before it. The embedded view does;
with a view older than the Job's status, the plan's status write is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

import orjson

from trainmaster.api.jobs.indexes import format_indexes, parse_indexes
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_text
from trainmaster.controllers.job.keys import EXPECTED_PODS
from trainmaster.jobs.models.batch import Job

_MOST = 100_000
"""The maximum number of Pods of a Job; a higher number in the status was not written by this controller."""


@dataclass(frozen=True, slots=True)
class Slot:
    attempt: int = 0
    open: bool = True
    failures: int = 0
    """Counted failures of the index before this attempt; if the slot is closed, including this attempt."""
    ignored: int = 0
    verdict: str = ""
    """The failure policy's action for a Pod that is still terminating; used if the Pod disappears."""
    at: str = ""
    """When the last Pod failed; set only while its replacement waits."""


FIRST = Slot()
"""The slot of a Pod without previous attempts. Shared, which makes creating and comparing thousands of them fast."""


def make_slot(attempt: int, failures: int, ignored: int) -> Slot:
    return Slot(attempt, failures=failures, ignored=ignored) if attempt or failures or ignored else FIRST


@dataclass(slots=True)
class ExpectedPods:
    slots: dict[int, Slot] = field(default_factory=dict)
    next: int = 0
    """The next serial number. Not used for Indexed Jobs."""
    failures: int = 0
    """Failed Pods since the last success; determines the back-off."""
    at: str = ""
    """When the last of them failed; set only while a replacement waits."""

    def copy(self) -> ExpectedPods:
        return ExpectedPods(dict(self.slots), self.next, self.failures, self.at)

    def close(self, slot: int, *, indexed: bool) -> None:
        """Closes the slot, so that the end of its Pod is not counted."""
        if indexed:
            self.slots[slot] = replace(self.slots[slot], open=False, verdict="", at="")
        else:
            del self.slots[slot]

    def list_open(self) -> list[int]:
        return [number for number, slot in self.slots.items() if slot.open]


def read_expected_pods(job: Job) -> ExpectedPods:
    text = job.annotations.get(EXPECTED_PODS)
    if not text:
        return _derive(job, job.status)
    try:
        return _decode(orjson.loads(text))
    except (ValueError, TypeError, AttributeError, KeyError):
        # Somebody edited the annotation, so start from the existing Pods.
        return ExpectedPods(next=_count_ended(job.status))


def render_expected_pods(expected: ExpectedPods, job: Job, status: Fields) -> str | None:
    """The annotation that belongs to the status; None if it can be derived from the status."""
    if expected == _derive(job, status):
        return None
    return orjson.dumps(_encode(expected), option=orjson.OPT_SORT_KEYS).decode()


def _derive(job: Job, status: Fields) -> ExpectedPods:
    """Assumes that the lowest free slots are open, each with its first attempt."""
    active = min(int(status.get("active") or 0), _MOST)
    if not job.is_indexed:
        ended = _count_ended(status)
        return ExpectedPods(dict.fromkeys(range(ended, ended + active), FIRST), ended + active)
    settled = {
        index for name in ("completedIndexes", "failedIndexes") for index in parse_indexes(read_text(status, name))
    }
    # This range is large enough, whichever indexes are settled.
    free = (number for number in range(active + len(settled)) if number not in settled)
    return ExpectedPods(dict.fromkeys(islice(free, active), FIRST))


def _count_ended(status: Fields) -> int:
    return int(status.get("succeeded") or 0) + int(status.get("failed") or 0)


def _encode(expected: ExpectedPods) -> dict[str, object]:
    groups: dict[Slot, list[int]] = {}
    for number, slot in expected.slots.items():
        groups.setdefault(slot, []).append(number)
    result: dict[str, object] = {"slots": [_encode_group(slot, numbers) for slot, numbers in _sort(groups.items())]}
    for name in ("next", "failures", "at"):
        if value := getattr(expected, name):
            result[name] = value
    return result


def _sort(groups: Iterable[tuple[Slot, list[int]]]) -> list[tuple[Slot, list[int]]]:
    return sorted(groups, key=lambda item: min(item[1]))


def _encode_group(slot: Slot, numbers: list[int]) -> dict[str, object]:
    result: dict[str, object] = {"open" if slot.open else "ended": format_indexes(numbers)}
    for name in ("attempt", "failures", "ignored", "verdict", "at"):
        if value := getattr(slot, name):
            result[name] = value
    return result


def _decode(value: Fields) -> ExpectedPods:
    slots: dict[int, Slot] = {}
    for group in value["slots"]:
        slot = Slot(
            attempt=int(group.get("attempt", 0)),
            open="open" in group,
            failures=int(group.get("failures", 0)),
            ignored=int(group.get("ignored", 0)),
            verdict=str(group.get("verdict", "")),
            at=str(group.get("at", "")),
        )
        for number in parse_indexes(group["open"] if "open" in group else group["ended"]):
            slots[number] = slot
    return ExpectedPods(slots, int(value.get("next", 0)), int(value.get("failures", 0)), str(value.get("at", "")))
