"""The page of `trainmaster describe`: a job's state, ranks, deadlines, recent events and suggested commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.api.code import CODE_DIGEST, GIT_COMMIT, GIT_DIRTY
from trainmaster.api.labels import RERUN_OF
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.terms import find_deadline, find_ttl
from trainmaster.api.meta import Object
from trainmaster.api.training.failing.failures import FIRST_FAILURE, LAST_WORDS
from trainmaster.cli import terminal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import show_age, style_state
from trainmaster.cli.output import build_table
from trainmaster.cli.spans import show_span
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models import training
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod, read_last_terminated, read_terminated, read_waiting
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.training import TrainingJob, TrainingState
from trainmaster.jobs.queueing.waits import QueueWait
from trainmaster.kit.clock import parse_time

_EVENTS = 10
_NOTES = {
    RERUN_OF: "Rerun of",
    GIT_COMMIT: "Git commit",
    GIT_DIRTY: "Git dirty",
    CODE_DIGEST: "Code",
}
"""Annotations to show, with their labels."""


@dataclass(frozen=True)
class JobDetails:
    """The data about one job. Everything but the job may be missing."""

    job: TrainingJob
    now: datetime
    runtime: Object | None = None
    attempts: tuple[int, int, int | None] = (0, 0, None)
    """From `TrainingJob.read_attempts`."""
    pods: Sequence[Pod] = ()
    events: Sequence[ObjectEvent] = ()
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)
    outputs: str = ""
    """The command that lists its outputs, if any."""
    advice: Sequence[str] = ()
    """What helps against its failure."""
    wait: QueueWait | None = None
    """What Kueue waits for before it starts the job."""

    @property
    def state(self) -> TrainingState:
        return self.job.state if self.wait is None else self.wait.state


def build_page(context: CommandContext, story: JobDetails) -> Iterator[str]:
    yield from _tell_state(context, story)
    yield ""
    yield from _tell_facts(story)
    for title, lines in (
        ("Ranks", _tell_ranks(context, story)),
        ("Conditions", _tell_conditions(context, story.job, story.now)),
        ("Workload", _tell_workload(context, story)),
        ("Last words of the first that failed", _tell_failure(story)),
        ("Events", _tell_events(context, story)),
        ("Next", _tell_next(story)),
    ):
        if lines:
            yield ""
            yield _paint(context, title, terminal.BOLD)
            yield from (f"  {line}" for line in lines)


def _paint(context: CommandContext, text: str, style: str) -> str:
    return terminal.paint(text, style) if terminal.has_colours(context) else text


def _tell_state(context: CommandContext, story: JobDetails) -> Iterator[str]:
    job, state = story.job, story.state
    word = _paint(context, state.word, style_state(state.word))
    yield f"{job.kind or 'TrainJob'} {job.namespace}/{job.name}: {word}"
    if state.sentence:
        yield from (f"  {line}" for line in terminal.wrap(context, state.sentence, 2))


def _describe_nodes(story: JobDetails) -> str:
    if story.job.nodes is not None:
        return str(story.job.nodes)
    if story.runtime is None:
        return "set by the runtime"
    return f"{TrainingRuntime(story.runtime).default_nodes} (set by the runtime)"


def _tell_facts(story: JobDetails) -> Iterator[str]:
    job, created = story.job, story.job.created_at
    reference = job.runtime
    facts = []
    if reference:
        facts.append(("Runtime", f"{reference['name']} ({reference.get('kind', 'ClusterTrainingRuntime')})"))
    facts.append(("Nodes", _describe_nodes(story)))
    facts.append(("Created", f"{created} ({show_age(created, story.now)} ago)"))
    end = job.end
    if end is not None:
        took = show_span((parse_time(end[1]) - parse_time(created)).total_seconds())
        facts.append(("Ended", f"{end[1]} (after {took})"))
    _, restarts, most = story.attempts
    if restarts or most:
        facts.append(("Restarts", f"{restarts} of {most}" if most else str(restarts)))
    percent, left = job.progress
    if percent is not None:
        rest = "" if end is not None or left is None else f", {show_span(left)} left"
        facts.append(("Progress", f"{percent}%{rest}"))
    facts += list(_describe_terms(story))
    notes = job.annotations
    facts += [(name, terminal.clean(notes[key])) for key, name in _NOTES.items() if key in notes]
    width = max(len(name) for name, _ in facts) + 3
    yield from (f"{name + ':':<{width}}{value}" for name, value in facts)


def _describe_terms(story: JobDetails) -> Iterator[tuple[str, str]]:
    deadline = find_deadline(story.job.raw, story.runtime)
    if deadline is not None:
        yield "Deadline", f"{show_span(deadline.seconds)} of activity ({deadline.source})"
    ttl = find_ttl(story.job.raw, story.runtime, story.policy)
    if ttl is None:
        yield "Retention", "kept until somebody deletes it"
    else:
        yield "Retention", f"deleted {show_span(ttl.seconds)} after its end ({ttl.source})"


def _tell_ranks(context: CommandContext, story: JobDetails) -> list[str]:
    placed = [(place, pod) for pod in story.pods if (place := find_place(pod.raw)) is not None]
    if not placed:
        return []
    header = ("RANK", "STATE", "EXIT", "RESTARTS", "ATTEMPT", "NODE", "POD", "AGE")
    rows = [_build_rank(place, pod, story.now) for place, pod in sorted(placed, key=lambda entry: _sort_key(entry[0]))]
    return build_table(context, header, rows, styles={"STATE": _style_phase}, indent=2)


def _sort_key(place: PodPlace) -> tuple[int, str, int, int, str]:
    return place.attempt, place.job, place.job_index, place.index, place.pod


def _style_phase(word: str) -> str:
    return {"Running": terminal.GOOD, "Succeeded": terminal.GOOD, "Pending": terminal.WAIT}.get(word, terminal.BAD)


def _build_rank(place: PodPlace, pod: Pod, now: datetime) -> tuple[str, ...]:
    word, code = describe_pod(pod)
    restarts = sum(int(one.get("restartCount") or 0) for one in pod.container_statuses)
    return (
        f"{place.job} {place.index}",
        word,
        code,
        str(restarts),
        str(place.attempt),
        pod.node or "-",
        place.pod,
        show_age(pod.created_at, now),
    )


def describe_pod(pod: Pod) -> tuple[str, str]:
    """(state in a word, exit code or -)"""
    word, code = pod.phase, "-"
    for one in pod.notable_container_statuses:
        terminated = read_terminated(one)
        ended = terminated or read_last_terminated(one)
        if ended and (ended.get("exitCode") or terminated):
            code = str(ended.get("exitCode", "-"))
        if word in ("Pending", "Running") and read_waiting(one).get("reason"):
            word = read_waiting(one)["reason"]
        elif word == "Failed" and terminated.get("reason") not in (None, "Error", "Completed"):
            word = terminated["reason"]
    if word in ("Pending", "Failed") and pod.reason:
        word = pod.reason
    return ("Terminating" if pod.is_deleting else word), code


def _tell_workload(context: CommandContext, story: JobDetails) -> list[str]:
    """What Kueue says about a job that it holds."""
    if story.wait is None:
        return []
    workload = story.wait.workload
    rows = [] if workload is None else _tell_conditions(context, workload, story.now)
    return [*map(terminal.clean, story.wait.facts), *rows]


def _tell_conditions(context: CommandContext, obj: ObjectModel, now: datetime) -> list[str]:
    rows = [
        (
            condition.get("type", ""),
            condition.get("status", ""),
            condition.get("reason", ""),
            show_age(condition.get("lastTransitionTime"), now),
            _shorten(condition.get("message", ""), FIRST_FAILURE),
        )
        for condition in obj.conditions
    ]
    return build_table(context, ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), rows, indent=2) if rows else []


def _shorten(message: str, *ends: str) -> str:
    """Removes what the page shows elsewhere: the first failing rank and its last output."""
    for end in (*ends, LAST_WORDS):
        message = message.partition(end)[0]
    return message


def _tell_failure(story: JobDetails) -> list[str]:
    failure = story.job.failure
    if failure is None or not failure.get("message"):
        return []
    code = f"exit code {failure['exitCode']}" if failure.get("exitCode") is not None else failure.get("reason", "")
    who = f"{failure.get('replicatedJob') or failure.get('job')} {failure.get('rank', 0)}"
    head = f"{who}, attempt {failure.get('attempt', 0)}, {code}"
    return [head, *(f"  {terminal.clean(line)}" for line in failure["message"].splitlines())]


def _tell_events(context: CommandContext, story: JobDetails) -> list[str]:
    """The events, newest last. Long messages are wrapped below the first line to fit the terminal."""
    lines = []
    for event in sorted(story.events, key=lambda event: event.time)[-_EVENTS:]:
        times = f" (x{event.count})" if event.count > 1 else ""
        age = show_age(event.time, story.now)
        reason = terminal.clean(event.reason)
        head = _paint(context, reason, terminal.WAIT) if event.is_warning else reason
        lines.append(f"{age:<6} {head}{times}  {event.about}")
        lines += [f"       {line}" for line in terminal.wrap(context, _shorten(event.message), 9)]
    return lines


def _tell_next(story: JobDetails) -> list[str]:
    job = story.job
    name = job.reference if job.state.word == training.DELETING else job.label
    name = name if job.namespace == "default" else f"{name} -n {job.namespace}"
    commands = {
        training.WAITING: [("explain", "why it does not run, and what would start it")],
        training.STARTING: [("logs -f", "what it prints, from the start")],
        training.RUNNING: [("logs -f", "what it prints")],
        training.SUSPENDED: [("resume", "let it go on")],
        training.FAILED: [("logs", "what it printed last"), ("restart", "submit it again under a new name")],
        training.COMPLETE: [("logs", "what it printed last")],
        training.DELETING: [("doctor", "what keeps it, when it does not go")],
    }[story.state.word]
    lines = [(f"trainmaster {command} {name}", text) for command, text in commands]
    if story.outputs:
        lines.append((f"{story.outputs} {name}", "what it wrote"))
    width = max(len(command) for command, _ in lines)
    advice = [terminal.clean(text) for text in (*story.advice, *(story.wait.unblock if story.wait else ()))]
    return [*advice, *(f"{command:<{width}}   {text}" for command, text in lines)]
