"""Explains one job: its state in one sentence and, if it is waiting, its position, what it waits for and what would
start it now.

`explain(view, namespace, name, now)` reads nothing but the view, so the command line (from lists), a server (from its
own view) and tests get the same answer. If the view contains no node of ours (a cluster with its own scheduler), the
sentence repeats what the objects say, without predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

from trainmaster.api.admission.trainjobs import find_runtime
from trainmaster.api.labels import ON_STALL
from trainmaster.api.lifecycle.terms import find_deadline, find_ttl
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOB_SETS, NODES, PODS
from trainmaster.api.state_texts import POD_TROUBLES
from trainmaster.api.state_texts import WAITING as WORDS
from trainmaster.api.training.failing.advice import list_advice
from trainmaster.api.training.failing.failures import summarize_failure
from trainmaster.api.workloads import build_gang
from trainmaster.client.view import View
from trainmaster.controllers.explain.changes import UnblockingChange, WhatIf
from trainmaster.controllers.explain.world import judge_gang, read_ledger
from trainmaster.controllers.lifecycle.finish import find_retention_runtime, read_retention
from trainmaster.controllers.scheduler.node_room import NodeRoom
from trainmaster.controllers.scheduler.queue_pass import SchedulingVerdict, VerdictKind
from trainmaster.controllers.scheduler.reconciler import NODE
from trainmaster.controllers.scheduler.sentences import describe as describe_verdict
from trainmaster.controllers.scheduler.sentences import describe_overcommit, list_all_obstacles
from trainmaster.jobs.janitor import describe_age
from trainmaster.jobs.kinds import TRAINING_KINDS, get_kind_name, split_reference
from trainmaster.jobs.lookups import AmbiguousName
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod, read_waiting
from trainmaster.jobs.models.training import (
    COMPLETE,
    DEADLINE_EXCEEDED,
    DELETING,
    DRAINED,
    DRAINED_TEXT,
    IDLE_GPUS,
    IDLE_GPUS_TEXT,
    RUNNING,
    STALLED,
    STARTING,
    SUSPENDED,
    WAITING,
    TrainingJob,
    TrainingState,
)
from trainmaster.jobs.queueing.names import QUEUED
from trainmaster.jobs.queueing.waits import QueueWait
from trainmaster.jobs.troubles import CRASHING, list_troubles
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.timeline import Now

_QUOTA = "exceeded quota"
"""Part of the message of a job whose Pods are refused by a quota."""


@dataclass(frozen=True, slots=True)
class JobExplanation:
    namespace: str
    name: str
    state: str
    sentence: str
    reason: str = ""
    """The reason in `status.waiting` or in the condition that determines the state; "" if there is none."""
    since: str = ""
    position: int = 0
    """The position in the queue, from 1; 0 if the job is not in the queue."""
    queue: int = 0
    """The number of gangs that wait for resources."""
    ahead: tuple[str, ...] = ()
    unblock: tuple[str, ...] = ()
    """What has to happen, or what the user can do."""
    changes: tuple[UnblockingChange, ...] = ()
    """What would start the job now, smallest change first."""
    facts: tuple[str, ...] = ()
    """Other useful facts: deadline, retention, restarts, progress."""
    kind: str = "TrainJob"


OwnModules: TypeAlias = Callable[[TrainingJob], Collection[str] | None]
"""The names of the modules in a job's code; None if they are not known."""


def explain(
    view: View,
    namespace: str,
    reference: str,
    now: Now,
    *,
    proposals: bool = True,
    own: OwnModules = lambda job: None,
    waits: Mapping[str, QueueWait] = MappingProxyType({}),
    with_shown: bool = True,
) -> JobExplanation | None:
    """`reference`: NAME or KIND/NAME. None if there is no such job; raises AmbiguousName if there are several.
    `proposals`: also find out what would start the job, which takes about a second if hundreds of jobs are in the
    queue. `waits`: by uid, why Kueue holds jobs. `with_shown`: False where the progress, the restarts and the failure
    are shown beside."""
    jobs = _list_named(view, namespace, reference)
    if len(jobs) > 1:
        raise AmbiguousName(namespace, jobs)
    if not jobs:
        return None
    explainer = _Explainer(view, jobs[0], now, proposals=proposals, own=own, with_shown=with_shown)
    wait = waits.get(jobs[0].uid)
    return explainer.explain() if wait is None else explainer.explain_wait(wait)


def _list_named(view: View, namespace: str, reference: str) -> list[TrainingJob]:
    kind, name = split_reference(reference)
    kinds = TRAINING_KINDS.values() if kind is None else (kind,)
    return [model(found) for model in kinds if (found := view.find(model.gvr, namespace, name)) is not None]


def list_waiting(
    view: View, namespace: str = "", waits: Mapping[str, QueueWait] = MappingProxyType({})
) -> list[tuple[str, str]]:
    """(namespace, KIND/NAME) of the jobs that are waiting. First the jobs whose status says so, or whom Kueue holds
    (`waits`), longest wait first; then those with a Pod that finds no node (as on a cluster whose jobs have no such
    status) or lacks something, such as a Secret or a claim."""
    found, unplaced = [], [pod for pod in map(Pod, view.list(PODS, namespace)) if _finds_no_node(pod) or _lacks(pod)]
    for model in TRAINING_KINDS.values():
        troubled = {(pod.namespace, pod.labels.get(model.pod_label)) for pod in unplaced}
        for job in map(model, view.list(model.gvr, namespace)):
            wait = waits.get(job.uid)
            if job.waiting or wait is not None or (job.namespace, job.name) in troubled:
                since = str(job.waiting.get("since") or (wait.since if wait else "") or "~")
                found.append((since, (job.namespace, job.reference)))
    return [place for _, place in sorted(found)]


def _finds_no_node(pod: Pod) -> bool:
    return read_text(pod.find_condition("PodScheduled"), "status") == "False"


def _lacks(pod: Pod) -> bool:
    """Whether a Pod that has not started yet says what is missing."""
    waits = map(read_waiting, pod.all_container_statuses)
    return pod.status.get("phase") == "Pending" and any(entry.get("message") for entry in waits)


class _Explainer:
    def __init__(
        self, view: View, job: TrainingJob, now: Now, *, proposals: bool, own: OwnModules, with_shown: bool
    ) -> None:
        self._with_shown = with_shown
        self._view = view
        self._job = job
        self._proposals = proposals
        self._own = own
        self._now = now
        self._place = (self._job.namespace, self._job.name)

    def explain(self) -> JobExplanation:
        condition = self._job.end_condition
        if condition is not None:
            return self._explain_end(self._job.state_ignoring_deletion, condition)
        if self._job.is_deleting:
            return self._explain_deletion()
        is_resuming = not self._job.is_suspended and self._job.waiting
        if self._job.is_suspended or (self._job.is_true(SUSPENDED) and not is_resuming):
            return self._explain_suspended(self._job.find_condition(SUSPENDED))
        if self._job.waiting:
            return self._explain_waiting(self._job.waiting)
        return self._explain_active()

    def explain_wait(self, wait: QueueWait) -> JobExplanation:
        """Of a job that Kueue holds."""
        ending = [pod for pod in self._list_pods() if not pod.is_over]
        place, texts = wait.position, [wait.message, *([self._tell_ending(ending)] if ending else ())]
        return self._make(
            WAITING,
            f"waits {'; '.join(texts)}",
            reason=QUEUED,
            since=wait.since,
            position=place.position if place else 0,
            queue=place.length if place else 0,
            ahead=place.ahead if place else (),
            unblock=wait.unblock,
            facts=wait.facts,
        )

    def _make(self, state: str, sentence: str, **more: Any) -> JobExplanation:
        return JobExplanation(*self._place, state, sentence, **more, kind=get_kind_name(type(self._job)))

    # Finished jobs

    def _explain_end(self, state: TrainingState, condition: Fields) -> JobExplanation:
        when = read_text(condition, "lastTransitionTime")
        age = f"{self._tell_age(when)} ago" if when else "at a time that nobody recorded"
        reason = state.reason
        if state.word == COMPLETE:
            sentence, todo = f"ended well {age}", []
        else:
            failure = state.failure
            text = state.sentence if failure else state.message
            sentence = f"failed {age} ({reason}): {text}"
            namespace, name = self._job.namespace, self._job.label
            todo = [
                f"`trainmaster logs {name} -n {namespace}` shows what it printed",
                f"`trainmaster restart {name} -n {namespace}` submits it again under a new name",
            ]
            advice = list_advice(failure, self._job.memory_limit, self._own(self._job)) if failure else []
            if reason == DEADLINE_EXCEEDED:
                todo.insert(0, "raise activeDeadlineSeconds and submit it again")
            elif reason == STALLED:
                todo.insert(0, f"if its steps may take longer: set the annotation {ON_STALL} to observe")
            elif advice:
                todo = [*advice, *todo]
            elif reason == "ReachedMaxRestarts":
                todo.append("if the cause was outside the program: `run --max-restarts`, or maxRestarts of its runtime")
        return self._make(
            state.word, sentence, reason=reason, since=when, unblock=tuple(todo), facts=tuple(self._list_retention())
        )

    def _list_retention(self) -> Iterator[str]:
        retention = self._job.retention
        if retention.get("deleteAt"):
            left = (parse_time(retention["deleteAt"]) - self._now.wall).total_seconds()
            when = f"in {describe_age(left)}" if left > 0 else "now"
            yield f"deleted {when}, at {retention['deleteAt']}, by {retention.get('source', 'its TTL')}"
        else:
            yield "kept until somebody deletes it: nobody set a TTL"
        if retention.get("message"):
            yield str(retention["message"])

    def _explain_deletion(self) -> JobExplanation:
        since = str(self._job.meta["deletionTimestamp"])
        kept = [name for name in self._job.finalizers if name not in ("foregroundDeletion", "orphan")]
        sentence = f"is being deleted, which began {self._tell_age(since)} ago"
        if kept:
            todo = f"whoever set the finalizer {', '.join(kept)} has to remove it; `trainmaster cleanup --help`"
            return self._make(DELETING, f"{sentence}, and kept by {', '.join(kept)}", since=since, unblock=(todo,))
        return self._make(DELETING, f"{sentence}; its Pods are ending", since=since)

    # Jobs that are not running

    def _explain_suspended(self, condition: Fields | None) -> JobExplanation:
        since = read_text(condition, "lastTransitionTime")
        namespace, name = self._job.namespace, self._job.label
        ending = [pod for pod in self._list_pods() if not pod.is_over]
        left = self._tell_ending(ending) if ending else "nothing of it runs"
        age = f"has been suspended for {self._tell_age(since)}" if since else "is suspended"
        sentence = f"{age}: {left}"
        if drained := self._job.drained_since if self._job.is_suspended else "":
            sentence = f"{sentence}; {DRAINED_TEXT.format(drained)}"
            return self._make(SUSPENDED, sentence, reason=DRAINED, since=since, unblock=("trainmaster undrain",))
        todo = [f"trainmaster resume {name} -n {namespace}"]
        questions = self._ask()
        if questions is not None:
            starts = questions.would_resume()
            todo.append(
                "it would start at once" if starts else "it would wait in the queue: there is no room for it now"
            )
        return self._make(SUSPENDED, sentence, reason=SUSPENDED, since=since, unblock=tuple(todo))

    def _tell_ending(self, pods: list[Pod]) -> str:
        """For Pods that are being stopped, or soon will be."""
        count = f"{len(pods)} Pod{'s are' if len(pods) > 1 else ' is'} still ending"
        ends = [str(pod.meta["deletionTimestamp"]) for pod in pods if pod.is_deleting]
        left = max((parse_time(end) - self._now.wall).total_seconds() for end in ends) if ends else 0.0
        return f"{count}, for at most {describe_age(left)}" if left > 0 else count

    def _explain_waiting(self, waiting: Fields) -> JobExplanation:
        reason, message, since = (read_text(waiting, name) for name in ("reason", "message", "since"))
        found = self._look()
        if found is not None and found[0].kind in (VerdictKind.WAITS, VerdictKind.STUCK):
            return self._explain_queued(*found, reason=reason, since=since)
        todo = [find_advice(reason)]
        changes: tuple[UnblockingChange, ...] = ()
        questions = self._ask() if _QUOTA in message and self._proposals else None
        if questions is not None:
            changes = tuple(questions.list_smaller())
        if waiting.get("until"):
            left = (parse_time(waiting["until"]) - self._now.wall).total_seconds()
            todo.insert(0, f"goes on by itself in {describe_age(max(0.0, left))}, at {waiting['until']}")
        facts = tuple(self._list_active_facts())
        sentence = f"waits ({reason}): {message}"
        return self._make(
            WAITING,
            sentence,
            reason=reason,
            since=since,
            unblock=tuple(filter(None, todo)),
            changes=changes,
            facts=facts,
        )

    def _explain_queued(
        self, verdict: SchedulingVerdict, room: NodeRoom, queue: int, *, reason: str, since: str
    ) -> JobExplanation:
        ledger = read_ledger(self._view)
        sentence = describe_verdict(verdict, room, ledger.list_holders())
        changes: list[UnblockingChange] = []
        unblock: list[str] = []
        questions = self._ask() if self._proposals else None
        if questions is not None:
            changes = questions.list_changes(verdict.lacking)
            if verdict.kind is VerdictKind.STUCK:
                changes += questions.list_sharing(verdict)
            if verdict.kind is VerdictKind.WAITS:
                unblock = [self._tell_release(label) for label in questions.list_releases()]
                unblock = unblock or [_tell_long_wait(verdict)]
            else:
                steps = self._list_steps(verdict, room, questions)
                unblock = [] if changes and len(steps) == 1 else steps or [find_advice(reason)]
        elif verdict.kind is VerdictKind.STUCK:
            unblock = self._list_steps(verdict, room) or [find_advice(reason)]
        return self._make(
            WAITING,
            sentence,
            reason=reason,
            since=since,
            position=verdict.position,
            queue=queue,
            ahead=verdict.ahead,
            unblock=tuple(filter(None, unblock)),
            changes=tuple(changes),
            facts=tuple(self._list_active_facts()),
        )

    def _list_steps(self, verdict: SchedulingVerdict, room: NodeRoom, questions: WhatIf | None = None) -> list[str]:
        """What removes the obstacles, in order, and what it waits for then, if that can be tried."""
        obstacles = list_all_obstacles(verdict, room)
        steps = [one.change.how if one.change is not None else one.advice for one in obstacles]
        repaired = None if questions is None else questions.find_repaired()
        if repaired is not None and repaired[0].kind is VerdictKind.WAITS:
            text = describe_verdict(repaired[0], repaired[1], read_ledger(self._view).list_holders())
            steps.append(f"then it waits for its turn: {text}")
        steps = list(filter(None, steps))
        return [f"{number}. {step}" for number, step in enumerate(steps, 1)] if len(steps) > 1 else steps

    def _tell_release(self, label: str) -> str:
        """The end of another job, with an estimate of when that will be if there is one."""
        namespace, _, name = label.partition("/")
        others = _list_named(self._view, namespace, name)
        text = f"when {label} ends"
        if len(others) != 1:
            return text
        other = others[0]
        _, remaining = other.progress
        if remaining is not None:
            return f"{text}, in about {describe_age(remaining)} by its own estimate"
        end = _find_deadline_end(self._view, other)
        if end is not None:
            left = (end - self._now.wall).total_seconds()
            return f"{text}, at the latest in {describe_age(max(0.0, left))} (its deadline)"
        return text

    def _look(self) -> tuple[SchedulingVerdict, NodeRoom, int] | None:
        """The scheduler's verdict on the gang; None if the scheduler is not responsible for it yet."""
        gang = self._find_gang()
        return judge_gang(self._view, gang) if gang else None

    def _find_node(self) -> Object | None:
        return self._view.find(NODES, "", NODE)

    def _find_jobset(self) -> JobSet | None:
        found = self._view.find(JOB_SETS, *self._place) if self._job.has_jobset else None
        return JobSet(found) if found is not None and JobSet(found).is_owned_by(self._job.uid) else None

    def _find_gang(self) -> str:
        """The scheduler's name of its gang; "" if there is none yet."""
        uid = self._find_gang_uid()
        return build_gang(self._job.namespace, uid) if uid else ""

    def _find_gang_uid(self) -> str:
        """The uid that identifies the gang on its Pods; "" if there is no gang yet."""
        if not self._job.has_jobset:
            return self._job.uid
        jobset = self._find_jobset()
        return "" if jobset is None else jobset.uid

    def _ask(self) -> WhatIf | None:
        """None on a cluster, which has a scheduler of its own."""
        return None if self._find_node() is None else WhatIf(self._view, self._job, self._find_gang(), self._now)

    # Running jobs

    def _explain_active(self) -> JobExplanation:
        pods = self._list_pods()
        running = [pod for pod in pods if pod.is_running and not pod.is_deleting and not any(list_troubles(pod))]
        facts = tuple(self._list_active_facts())
        if running and len(running) == len([pod for pod in pods if not pod.is_over]):
            started = min((pod.started_at for pod in running), default="")
            age = f"has been running for {self._tell_age(started)}" if started else "runs"
            count = f"{len(running)} Pod{'s' if len(running) > 1 else ''} run{'s' if len(running) == 1 else ''}"
            if self._job.stalled:
                return self._explain_stall(f"{age}: {count}, but stands still", facts)
            idle = self._job.idle_gpus_since
            more = f"; {IDLE_GPUS_TEXT.format(idle)}" if idle else ""
            namespace, name = self._place
            todo = (f"`trainmaster logs {name} -n {namespace}` shows what it does",) if idle else ()
            reason = IDLE_GPUS if idle else ""
            sentence = f"{age}: {count}{more}"
            return self._make(RUNNING, sentence, reason=reason, since=started, unblock=todo, facts=facts)
        created = self._job.created_at
        ending = [pod for pod in pods if pod.is_deleting and not pod.is_over]
        texts = [*self._list_pod_reasons(pods), *([self._tell_ending(ending)] if ending else ())]
        if running and texts:
            texts.insert(0, f"{len(running)} Pod{'s run' if len(running) > 1 else ' runs'}")
        text = "; ".join(texts) or "its Pods are being made"
        sentence = f"has been starting for {self._tell_age(created)}: {text}"
        namespace, name = self._place
        todo = () if pods else (f"if this lasts: `trainmaster doctor {self._job.word} {name} -n {namespace}`",)
        if "not found" in text:
            todo = ("create what is missing, and it goes on by itself; or delete the job and correct the name",)
        return self._make(STARTING, sentence, since=created, unblock=todo, facts=facts)

    def _explain_stall(self, runs: str, facts: tuple[str, ...]) -> JobExplanation:
        stalled, name, place = self._job.stalled, self._job.name, f"-n {self._job.namespace}"
        since = read_text(stalled, "since")
        todo = (
            f"`trainmaster logs {name} {place}` shows what its ranks printed last",
            f"`trainmaster restart {name} {place}` begins the next attempt, from the last complete checkpoint",
            f"the annotation {ON_STALL} (restart or fail) does that by itself the next time",
        )
        sentence = f"{runs} since {self._tell_age(since)}: {read_text(stalled, 'message')}"
        return self._make(RUNNING, sentence, reason=STALLED, since=since, unblock=todo, facts=facts)

    def _list_pods(self) -> list[Pod]:
        uid, job = self._find_gang_uid(), self._job
        pods = self._view.list(PODS, job.namespace, {job.pod_label: job.name}) if uid else ()
        return [Pod(pod) for pod in pods if (place := job.find_place(pod)) is not None and place.jobset == uid]

    def _list_pod_reasons(self, pods: list[Pod]) -> Iterator[str]:
        """What Pods that are not running yet say, without duplicates."""
        seen = set()
        for pod in pods:
            waits = [one for one in map(read_waiting, pod.all_container_statuses) if one.get("reason") != CRASHING]
            texts = [": ".join(filter(None, (one.get("reason"), one.get("message")))) for one in waits]
            texts += [f"{one.reason}: {one.message}" for one in list_troubles(pod) if one.reason == CRASHING]
            texts.append(read_text(pod.find_condition("PodScheduled"), "message") if _finds_no_node(pod) else "")
            for text in texts:
                if text and text not in seen:
                    seen.add(text)
                    yield f"Pod {pod.name}: {text}"

    def _list_active_facts(self) -> Iterator[str]:
        if self._with_shown:
            yield from self._list_shown()
        end = _find_deadline_end(self._view, self._job)
        if end is not None:
            left = (end - self._now.wall).total_seconds()
            yield f"stopped by its deadline in {describe_age(max(0.0, left))}, at {format_time(end)}"
        ttl = self._find_ttl()
        if ttl:
            yield ttl
        node = self._find_node()
        shared = describe_overcommit(Node(node)) if node is not None else ""
        if shared:
            yield shared

    def _list_shown(self) -> Iterator[str]:
        """What a page about the job has in a form of its own."""
        percent, remaining = self._job.progress
        if percent is not None:
            more = f", about {describe_age(remaining)} left by its own estimate" if remaining is not None else ""
            yield f"progress {percent} %{more}"
        _, times, most = self._job.read_attempts(self._find_jobset())
        if times:
            yield f"restarted {times} time{'s' if times > 1 else ''}" + (f" of at most {most}" if most else "")
        if self._job.failure:
            yield f"last failure: {summarize_failure(self._job.failure)}"

    def _find_ttl(self) -> str:
        term = find_ttl(self._job.raw, find_retention_runtime(self._view, self._job), read_retention(self._view))
        return f"deleted {describe_age(term.seconds)} after its end, by {term.source}" if term is not None else ""

    def _tell_age(self, moment: str) -> str:
        return describe_age(max(0.0, (self._now.wall - parse_time(moment)).total_seconds()))


def _tell_long_wait(verdict: SchedulingVerdict) -> str:
    """The advice if no single job's end would be enough."""
    ahead = verdict.position - 1
    if not ahead:
        return "more than one of those that run has to end first"
    who = "the one ahead of it comes" if ahead == 1 else f"the {ahead} ahead of it come"
    return f"{who} first; then more of those that run have to end"


def find_advice(reason: str) -> str:
    words = WORDS.get(reason) or POD_TROUBLES.get(reason)
    return words.advice if words is not None else "read the message"


def _find_deadline_end(view: View, job: TrainingJob) -> datetime | None:
    """When the deadline stops the job, by the wall clock; None if it has no deadline or is suspended."""
    term = find_deadline(job.raw, find_runtime(job.raw, view) if job.runtime else None)
    if term is None or job.is_suspended:
        return None
    return parse_time(job.active_since) + timedelta(seconds=term.seconds)
