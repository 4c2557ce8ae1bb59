"""The books of a Job: which Pods must exist, so that one that vanished is noticed, and none is counted twice.

Every Pod belongs to a slot: in Indexed Jobs the completion index with an attempt, else a serial number. A slot is open
from the birth of its Pod until its end has been counted. So of each Pod exactly one end is counted, in whatever order
Pods end, vanish or stay for ever; an open slot without a Pod is a Pod that somebody removed by force.

The books are an annotation, written in the same status write as the counts they explain, so the two never disagree. A
Job that runs without incidents needs none: its books follow from `status.active` (`_derive`). Finished Jobs have none.
Times stand in them only while a replacement waits for its time.

The reader trusts that a view which shows the Job's last status also shows the Pods made before it. The embedded view
does; a view that is older than the Job's status makes a plan whose status write is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

import orjson

from trainmaster.api.jobs.indexes import format_indexes, parse_indexes
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_text
from trainmaster.controllers.job.keys import BOOKS
from trainmaster.jobs.models.batch import Job

_MOST = 100_000
"""No Job has more Pods at once; a status that says so was not written here."""


@dataclass(frozen=True, slots=True)
class Slot:
    attempt: int = 0
    open: bool = True
    failures: int = 0
    """Counted failures of the index before this attempt; after it when closed."""
    ignored: int = 0
    verdict: str = ""
    """What the failure policy says about a Pod that is still ending. Should it vanish, this is what counts."""
    at: str = ""
    """When the last Pod failed; only while its replacement waits."""


FIRST = Slot()
"""The slot of a Pod without a history. Shared, so that books of thousands of such Pods are made and compared fast."""


def make_slot(attempt: int, failures: int, ignored: int) -> Slot:
    return Slot(attempt, failures=failures, ignored=ignored) if attempt or failures or ignored else FIRST


@dataclass(slots=True)
class Books:
    slots: dict[int, Slot] = field(default_factory=dict)
    next: int = 0
    """The next serial number. Indexed Jobs have none."""
    failures: int = 0
    """Failed Pods since the last success: how long replacements wait."""
    at: str = ""
    """When the last of them failed; only while a replacement waits."""

    def copy(self) -> Books:
        return Books(dict(self.slots), self.next, self.failures, self.at)

    def close(self, slot: int, *, indexed: bool) -> None:
        """Its Pod may go without being counted."""
        if indexed:
            self.slots[slot] = replace(self.slots[slot], open=False, verdict="", at="")
        else:
            del self.slots[slot]

    def list_open(self) -> list[int]:
        return [number for number, slot in self.slots.items() if slot.open]


def read_books(job: Job) -> Books:
    text = job.annotations.get(BOOKS)
    if not text:
        return _derive(job, job.status)
    try:
        return _decode(orjson.loads(text))
    except (ValueError, TypeError, AttributeError, KeyError):
        # Edited by hand. What can be seen is all that is left to go by.
        return Books(next=_count_ended(job.status))


def render_books(books: Books, job: Job, status: Fields) -> str | None:
    """The annotation that goes with that status; None when the status alone tells as much."""
    if books == _derive(job, status):
        return None
    return orjson.dumps(_encode(books), option=orjson.OPT_SORT_KEYS).decode()


def _derive(job: Job, status: Fields) -> Books:
    """Without incidents the lowest free slots are open, each in its first attempt."""
    active = min(int(status.get("active") or 0), _MOST)
    if not job.is_indexed:
        ended = _count_ended(status)
        return Books(dict.fromkeys(range(ended, ended + active), FIRST), ended + active)
    settled = {
        index for name in ("completedIndexes", "failedIndexes") for index in parse_indexes(read_text(status, name))
    }
    # So many are enough, whichever of them are settled.
    free = (number for number in range(active + len(settled)) if number not in settled)
    return Books(dict.fromkeys(islice(free, active), FIRST))


def _count_ended(status: Fields) -> int:
    return int(status.get("succeeded") or 0) + int(status.get("failed") or 0)


def _encode(books: Books) -> dict[str, object]:
    groups: dict[Slot, list[int]] = {}
    for number, slot in books.slots.items():
        groups.setdefault(slot, []).append(number)
    result: dict[str, object] = {"slots": [_encode_group(slot, numbers) for slot, numbers in _sort(groups.items())]}
    for name in ("next", "failures", "at"):
        if value := getattr(books, name):
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


def _decode(value: Fields) -> Books:
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
    return Books(slots, int(value.get("next", 0)), int(value.get("failures", 0)), str(value.get("at", "")))
