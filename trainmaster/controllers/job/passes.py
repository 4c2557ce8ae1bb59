"""The state of one pass over a Job: its Pods, their counts, and the decisions so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainmaster.api.conditions import build_condition
from trainmaster.api.jobs.indexes import format_indexes
from trainmaster.api.labels import WAITING
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.writes import Create
from trainmaster.controllers.job import outcome as ends
from trainmaster.controllers.job.balance import MOST, list_missing, list_surplus
from trainmaster.controllers.job.claims import Claims, build_release
from trainmaster.controllers.job.expected_pods import FIRST, render_expected_pods
from trainmaster.controllers.job.keys import EXPECTED_PODS
from trainmaster.controllers.job.outcome import JobOutcome
from trainmaster.controllers.job.pod_counts import PodCounts
from trainmaster.controllers.job.pods import build_pod, build_pod_name
from trainmaster.engine.draft import ObjectDraft, build_delete
from trainmaster.engine.plan import Plan
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.steps import Steps
from trainmaster.kit.timeline import Now

_STEP = 50
"""Pods that are built before others may run; about a millisecond."""
_SIMILAR = 10
"""Similar events (differing only in text) before they are combined, as in upstream's recorder."""
_COMBINED = "(combined from similar events): "


class Pass:
    def __init__(
        self,
        job: Job,
        claims: Claims,
        counts: PodCounts,
        policy: BackoffPolicy,
        now: Now,
        is_name_taken: Callable[[str], bool],
    ) -> None:
        self._job = job
        self._draft = ObjectDraft(JOBS, job)
        self._draft.writes += claims.adopted
        self._claims = claims
        self._tally = counts
        self._policy = policy
        self._now = now
        self._is_name_taken = is_name_taken
        self._indexed = job.is_indexed
        self._expected = counts.expected
        self._is_news = counts.is_news
        self._created = 0
        self._stopped: list[Pod] = []
        self._released: list[Pod] = []
        self._failed = counts.failed
        self._start_time: str | None = job.status.get("startTime")

    def build_plan(self) -> Steps[Plan]:
        if self._find_decision() is not None:
            self._end()
        else:
            self._start()
            outcome = ends.find_outcome(self._job, self._tally, self._now)
            if outcome is None and ends.has_completed(self._job, self._tally):
                outcome = ends.COMPLETED
            if outcome is not None:
                self._decide(outcome)
            else:
                yield from self._manage_pods()
                self._draft.wake_after(ends.find_time_left(self._job, self._now))
        self._set_status()
        return self._draft.build_plan()

    # Finishing the Job

    def _find_decision(self) -> str | None:
        return next((kind for kind in (ends.SUCCESS, ends.FAILURE) if self._draft.is_true(kind)), None)

    def _decide(self, outcome: JobOutcome) -> None:
        """Stores the outcome. Running Pods are stopped in a later pass; stopping them now could hide the cause."""
        self._set(outcome.kind, outcome.reason, outcome.message)
        for number in self._expected.list_open():
            self._close(number)
            # As upstream, Pods that are stopped because the Job failed count as failed.
            self._failed += 1 if outcome.kind == ends.FAILURE else 0
        if not self._tally.active and not self._tally.terminating:
            self._finish()

    def _end(self) -> None:
        # The counts became final with the decision; Pods that appear later are stopped but not counted.
        self._failed = self._job.failed
        for number in self._expected.list_open():
            self._close(number)
        self._stop(self._tally.active)
        if not self._tally.active and not self._tally.terminating:
            self._finish()

    def _finish(self) -> None:
        kind = self._find_decision()
        condition = self._draft.find_condition(kind or "")
        assert condition is not None, "decided before it is finished"
        reason, message = condition["reason"], condition["message"]
        if self._start_time is None and self._job.completions != 0:
            # The Job was suspended when it ended. The API requires a start time for finished Jobs.
            self._start_time = format_time(self._now.wall)
        if kind == ends.FAILURE:
            self._set("Failed", reason, message)
            self._note(reason, message, warning=True)
            return
        self._set("Complete", reason, message)
        completions = self._job.completions
        if completions is not None and self._tally.succeeded > completions:
            text = "Too many succeeded pods running after completion count reached"
            self._note("TooManySucceededPods", text, warning=True)
        self._note("Completed", "Job completed")

    # Suspending and resuming

    def _start(self) -> None:
        if self._start_time is None and not self._job.is_suspended:
            self._start_time = format_time(self._now.wall)

    def _suspend(self) -> None:
        for number in self._expected.list_open():
            self._close(number)
        if not self._draft.is_true("Suspended"):
            self._set("Suspended", "JobSuspended", "Job suspended")
            self._note("Suspended", "Job suspended")
            self._start_time = None

    def _resume(self) -> None:
        if self._draft.is_true("Suspended"):
            self._set("Suspended", "JobResumed", "Job resumed", status=False)
            self._note("Resumed", "Job resumed")
            self._start_time = format_time(self._now.wall)

    # Pods

    def _manage_pods(self) -> Steps[None]:
        is_suspended = self._job.is_suspended
        if is_suspended:
            self._suspend()
        else:
            self._resume()
        self._release_pods()
        if self._is_news or self._released:
            return
        if self._tally.strays:
            self._stop(self._tally.strays[:MOST])
        elif not is_suspended:
            yield from self._balance()

    def _release_pods(self) -> None:
        """Releases Pods that the selector does not match: closes their slots, and disowns them in a later pass."""
        for facts in self._claims.pods if self._claims.foreign else ():
            if facts.uid not in self._claims.foreign or facts.is_terminating:
                continue
            key = facts.find_key(indexed=self._indexed)
            slot = self._expected.slots.get(key[0]) if key else None
            if key and slot is not None and slot.open and slot.attempt == key[1]:
                self._close(key[0])
            elif not self._is_news:
                self._draft.write(build_release(self._job, facts.pod))
                self._released += [facts.pod] if facts.is_active else []

    def _balance(self) -> Steps[None]:
        surplus = list_surplus(self._job, self._tally)
        for number in surplus:
            self._close(number)
        if surplus:
            return
        missing = list_missing(self._job, self._tally, self._policy, self._now)
        self._draft.wake_after(missing.pause)
        for count, number in enumerate(missing.numbers, 1):
            self._create(number)
            if not count % _STEP:
                yield
        if missing.is_truncated:
            self._draft.wake_after(0.0)
        if missing.is_all:
            self._expected.at = ""

    def _create(self, number: int) -> None:
        before = self._expected.slots.get(number)
        slot = FIRST if before is None else replace(before, attempt=before.attempt + 1, open=True, at="")
        if not self._indexed:
            number = self._expected.next
        # If the name is taken by a Pod that is not ours, use the next one.
        while self._is_name_taken(build_pod_name(self._job, number, slot.attempt)):
            if self._indexed:
                slot = replace(slot, attempt=slot.attempt + 1)
            else:
                number += 1
        self._expected.slots[number] = slot
        if not self._indexed:
            self._expected.next = number + 1
        pod = build_pod(self._job, number, slot)
        # The template of a stored Job has been decoded, defaulted and validated.
        self._draft.write(Create(PODS, pod, proven=True))
        self._created += 1
        count = len(self._tally.active) + self._tally.succeeded + self._tally.failed + self._created
        self._note_one("SuccessfulCreate", f"Created pod: {pod['metadata']['name']}", count)

    def _stop(self, pods: tuple[Pod, ...]) -> None:
        for pod in pods:
            self._draft.write(build_delete(PODS, pod))
            self._stopped.append(pod)
            self._note_one("SuccessfulDelete", f"Deleted pod: {pod.name}", len(self._stopped))

    def _close(self, number: int) -> None:
        self._expected.close(number, indexed=self._indexed)
        self._is_news = True

    # Status and events

    def _set(self, kind: str, reason: str, message: str, *, status: bool = True) -> None:
        condition = build_condition(kind, status, reason, message, self._now.wall)
        self._draft.set_condition({**condition, "lastProbeTime": format_time(self._now.wall)})

    def _note(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._draft.note(self._job, reason, message, warning=warning)

    def _note_one(self, reason: str, message: str, count: int) -> None:
        """Combines similar events of a pass into one with the last message, as upstream's recorder."""
        if count <= _SIMILAR:
            self._note(reason, message)
            return
        notes = self._draft.notes
        if notes and notes[-1].reason == reason and notes[-1].message.startswith(_COMBINED):
            notes.pop()
        self._note(reason, _COMBINED + message)

    def _set_status(self) -> None:
        """The counts after this plan is applied; zero counts are omitted, as upstream."""
        counts, draft = self._tally, self._draft
        gone = [*self._stopped, *self._released]
        draft.status |= {
            "active": len(counts.active) + self._created - len(gone) or None,
            "succeeded": counts.succeeded or None,
            "failed": self._failed or None,
            "completedIndexes": format_indexes(counts.completed) or None,
            "ready": counts.ready - sum(1 for pod in gone if pod.is_ready),
            "terminating": len(counts.terminating) + len(self._stopped),
            "uncountedTerminatedPods": {},
            "startTime": self._start_time,
        }
        if "backoffLimitPerIndex" in self._job.spec:
            draft.status["failedIndexes"] = format_indexes(counts.failed_indexes)
        complete = draft.find_condition("Complete")
        if complete is not None:
            draft.status["completionTime"] = self._find_completion_time(complete["lastTransitionTime"])
        is_finished = draft.is_true("Complete") or draft.is_true("Failed")
        # Written together with the counts that it belongs to. Finished Jobs have neither annotation.
        expected = None if is_finished else render_expected_pods(self._expected, self._job, draft.status)
        draft.annotations = {EXPECTED_PODS: expected, WAITING: None if is_finished else counts.waiting}

    def _find_completion_time(self, end: str) -> str:
        """The API requires that a Job does not end before its start, even if the clock was set back."""
        start = self._start_time
        return start if start is not None and parse_time(start) > parse_time(end) else end
