"""Counts a Job's Pods: which are running, which ended since the last pass, and the updated record of expected Pods.

Only Pods of open slots are counted, and counting closes the slot; the stored counters change only together with the
record. Running Pods of closed slots are strays: they are stopped without being counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from trainmaster.api.jobs.indexes import parse_indexes
from trainmaster.api.reading import read_text
from trainmaster.controllers.job.expected_pods import ExpectedPods, Slot, make_slot
from trainmaster.controllers.job.facts import PodFacts
from trainmaster.controllers.job.failure_policy import FAIL_INDEX, IGNORE, PodFailureVerdict, judge
from trainmaster.controllers.job.pods import get_failure_counts, get_finish_time
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.steps import Steps

_STEP = 250
"""Pods that are counted before others may run; about half a millisecond."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    expected: ExpectedPods
    is_news: bool
    """Whether the record of expected Pods has changed. It is stored before any action that depends on it."""
    active: tuple[Pod, ...]
    terminating: tuple[Pod, ...]
    strays: tuple[Pod, ...]
    """Active Pods without an open slot."""
    running: dict[int, Pod]
    """The active Pods of open slots."""
    completed: frozenset[int]
    failed_indexes: frozenset[int]
    succeeded: int
    failed: int
    ready: int
    fail_job: str
    """The message of the first Pod that matched a FailJob rule."""
    waiting: str | None
    """The waiting annotation of the first Pod that could not be scheduled."""


def count_pods(
    job: Job, stored: ExpectedPods, pods: Sequence[PodFacts], now: datetime, has_left: Callable[[int, Slot], bool]
) -> Steps[PodCounts]:
    """`has_left(slot number, slot)`: whether the Pod exists but no longer belongs to the Job."""
    count = _Count(job, stored, now)
    for start in range(0, len(pods), _STEP):
        if len(pods) > _STEP:
            yield
        for facts in pods[start : start + _STEP]:
            count.look_at(facts)
    count.find_missing_pods(has_left)
    count.settle()
    return count.build()


class _Count:
    def __init__(self, job: Job, stored: ExpectedPods, now: datetime) -> None:
        self.job = job
        self.now = now
        self.indexed = job.is_indexed
        self.stored = stored
        self.expected = self.stored.copy()
        self.below = (job.completions or 0) if self.indexed else None
        self.completed = set(parse_indexes(read_text(job.status, "completedIndexes"), self.below))
        self.failed_indexes = set(parse_indexes(read_text(job.status, "failedIndexes"), self.below))
        self.succeeded = job.succeeded
        self.failed = job.failed
        self.active: list[Pod] = []
        self.terminating: list[Pod] = []
        self.strays: list[Pod] = []
        self.open: dict[int, Pod] = {}
        self.running: dict[int, Pod] = {}
        self.ending: dict[int, Pod] = {}
        """The Pods of open slots that have ended or are terminating."""
        self.ready = 0
        self.waiting: str | None = None
        self.fail_job = ""
        self.ends: list[datetime] = []
        """When the newly counted failed Pods ended."""
        self.successes: list[datetime] = []
        policy = job.spec.get("podReplacementPolicy", "TerminatingOrFailed")
        self.counts_terminating = policy == "TerminatingOrFailed"

    def look_at(self, facts: PodFacts) -> None:
        """Called for each Pod in each pass, so it uses only the cached facts."""
        slot = self._find_open_slot(facts)
        pod = facts.pod
        if slot is not None:
            self.open[slot] = pod
        if facts.is_over or facts.is_terminating:
            if not facts.is_over:
                self.terminating.append(pod)
            if slot is not None:
                # A later attempt replaces an earlier one in the same slot.
                self.ending[slot] = pod
                self.running.pop(slot, None)
            return
        self.active.append(pod)
        if slot is None:
            self.strays.append(pod)
        else:
            self.running[slot] = pod
            self.ending.pop(slot, None)
        if facts.is_ready:
            self.ready += 1
        elif self.waiting is None:
            self.waiting = facts.waiting

    def _find_open_slot(self, facts: PodFacts) -> int | None:
        """The number of the Pod's open slot. If the Pod is not recorded yet, its slot is added."""
        key = facts.find_key(indexed=self.indexed)
        if key is None:
            return None
        number, attempt = key
        if self.below is not None and number >= self.below:
            self._retire(number, attempt)
            return None
        if number in self.completed or number in self.failed_indexes:
            return None
        slot = self.expected.slots.get(number)
        if slot is None and not self.indexed and number < self.stored.next:
            return None
        if slot is None:
            failures, ignored = get_failure_counts(facts.pod)
            slot = self.expected.slots[number] = make_slot(attempt, failures, ignored)
            if not self.indexed:
                self.expected.next = max(self.expected.next, number + 1)
        elif attempt > slot.attempt:
            slot = self.expected.slots[number] = replace(slot, attempt=attempt, open=True, verdict="", at="")
        return number if slot.open and attempt == slot.attempt else None

    def _retire(self, number: int, attempt: int) -> None:
        """Closes an index that is outside the Job's completions. The attempt is kept, because the next Pod needs
        another name if the index comes back."""
        slot = self.expected.slots.get(number)
        if slot is None or slot.open or slot.attempt < attempt:
            self.expected.slots[number] = Slot(max(attempt, slot.attempt if slot else 0), open=False)

    def find_missing_pods(self, has_left: Callable[[int, Slot], bool]) -> None:
        for number in self.expected.list_open():
            slot = self.expected.slots[number]
            if self.below is not None and number >= self.below:
                self._retire(number, slot.attempt)
            elif number in self.open:
                continue
            elif has_left(number, slot):
                self.expected.close(number, indexed=self.indexed)
            else:
                self._fail(number, PodFailureVerdict(slot.verdict) if slot.verdict else PodFailureVerdict(), self.now)

    def settle(self) -> None:
        """Counts the Pods that ended, and updates the back-off."""
        for number, pod in self.ending.items():
            phase = pod.phase
            if phase == "Succeeded":
                self._succeed(number, pod)
            elif phase == "Failed" or (pod.is_deleting and self.counts_terminating):
                verdict = judge(self.job, pod)
                self.fail_job = self.fail_job or verdict.message
                self._fail(number, verdict, get_finish_time(pod))
            elif pod.is_deleting:
                self._expect_end(number, pod)
        self._remember_failures()

    def _succeed(self, number: int, pod: Pod) -> None:
        del self.expected.slots[number], self.open[number]
        if self.indexed:
            self.completed.add(number)
        else:
            self.succeeded += 1
        self.successes.append(get_finish_time(pod))

    def _fail(self, number: int, verdict: PodFailureVerdict, ended: datetime) -> None:
        slot = self.expected.slots.pop(number)
        self.open.pop(number, None)
        self.ends.append(ended)
        counts = verdict.action != IGNORE
        self.failed += 1 if counts else 0
        if not self.indexed:
            return
        limit = self.job.spec.get("backoffLimitPerIndex")
        if limit is not None and (verdict.action == FAIL_INDEX or (counts and slot.failures >= limit)):
            self.failed_indexes.add(number)
            return
        self.expected.slots[number] = Slot(
            slot.attempt,
            open=False,
            failures=slot.failures + 1 if counts else slot.failures,
            ignored=slot.ignored if counts else slot.ignored + 1,
            at="" if limit is None else format_time(ended),
        )

    def _expect_end(self, number: int, pod: Pod) -> None:
        """Keeps the verdict on a terminating Pod, which may disappear before its end is seen."""
        verdict = judge(self.job, pod)
        slot = self.expected.slots[number]
        if verdict.is_matched and slot.verdict != verdict.action:
            self.expected.slots[number] = replace(slot, verdict=verdict.action)

    def _remember_failures(self) -> None:
        """As upstream, failures since the last success determine the back-off, which starts when the last one ended."""
        if not self.ends and not self.successes:
            return
        later = [end for end in self.ends if not self.successes or end > max(self.successes)]
        if self.successes:
            self.expected.failures, self.expected.at = 0, ""
        if later:
            before = [parse_time(self.expected.at)] if self.expected.at else []
            # A time in the future was stored before the clock was set back; the new failures are later.
            before = [moment for moment in before if moment <= self.now]
            self.expected.failures += len(later)
            self.expected.at = format_time(max(later + before))

    def build(self) -> PodCounts:
        return PodCounts(
            expected=self.expected,
            is_news=self.expected != self.stored,
            active=tuple(self.active),
            terminating=tuple(self.terminating),
            strays=tuple(self.strays),
            running=self.running,
            completed=frozenset(self.completed),
            failed_indexes=frozenset(self.failed_indexes),
            succeeded=len(self.completed) if self.indexed else self.succeeded,
            failed=self.failed,
            ready=self.ready,
            fail_job=self.fail_job,
            waiting=self.waiting,
        )
