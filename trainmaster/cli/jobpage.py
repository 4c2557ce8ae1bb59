"""One TrainJob as a page for people: how it is, its ranks, its terms, what happened lately, and what to type next.

Pure: from objects to lines. Used by `trainmaster describe`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainmaster.api.code import CODE_DIGEST, GIT_COMMIT, GIT_DIRTY
from trainmaster.api.conditions import list_conditions
from trainmaster.api.labels import RERUN_OF
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.terms import find_deadline, find_ttl
from trainmaster.api.meta import Object
from trainmaster.api.places import PodPlace, find_place
from trainmaster.api.training.ends import find_end
from trainmaster.api.training.failures import FIRST_FAILURE, LAST_WORDS
from trainmaster.cli import terminal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import show_age, style_state
from trainmaster.cli.output import build_table
from trainmaster.cli.spans import show_span
from trainmaster.jobs.models import trainjobs
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import parse_time

_EVENTS = 10
_NOTES = {
    RERUN_OF: "Rerun of",
    GIT_COMMIT: "Git commit",
    GIT_DIRTY: "Git dirty",
    CODE_DIGEST: "Code",
}
"""Annotations that a reader wants to see, by their names for people."""


@dataclass(frozen=True)
class JobStory:
    """What is known of one job. Everything but the TrainJob may be missing."""

    trainjob: Object
    now: datetime
    runtime: Object | None = None
    jobset: Object | None = None
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)
    outputs: str = ""
    """The command that lists what it wrote, where there is one."""


def build_page(context: CommandContext, story: JobStory) -> Iterator[str]:
    yield from _tell_state(context, story)
    yield ""
    yield from _tell_facts(story)
    for title, lines in (
        ("Ranks", _tell_ranks(context, story)),
        ("Conditions", _tell_conditions(context, story)),
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


def _tell_state(context: CommandContext, story: JobStory) -> Iterator[str]:
    meta, state = story.trainjob["metadata"], TrainJob(story.trainjob).state
    word = _paint(context, state.word, style_state(state.word))
    yield f"TrainJob {meta['namespace']}/{meta['name']}: {word}"
    if state.sentence:
        yield from (f"  {line}" for line in terminal.wrap(context, state.sentence, 2))


def _tell_facts(story: JobStory) -> Iterator[str]:
    job, meta = story.trainjob, story.trainjob["metadata"]
    reference = job["spec"]["runtimeRef"]
    facts = [("Runtime", f"{reference['name']} ({reference.get('kind', 'ClusterTrainingRuntime')})")]
    nodes = TrainJob(job).nodes
    facts.append(("Nodes", str(nodes) if nodes else "as the runtime says"))
    facts.append(("Created", f"{meta['creationTimestamp']} ({show_age(meta['creationTimestamp'], story.now)} ago)"))
    end = find_end(job)
    if end is not None:
        took = show_span((parse_time(end[1]) - parse_time(meta["creationTimestamp"])).total_seconds())
        facts.append(("Ended", f"{end[1]} (after {took})"))
    restarts = _describe_restarts(story.jobset)
    if restarts:
        facts.append(("Restarts", restarts))
    percent, left = TrainJob(job).progress
    if percent is not None:
        rest = "" if end is not None or left is None else f", {show_span(left)} left"
        facts.append(("Progress", f"{percent}%{rest}"))
    facts += list(_describe_terms(story))
    annotations = meta.get("annotations") or {}
    facts += [(name, terminal.clean(annotations[key])) for key, name in _NOTES.items() if key in annotations]
    width = max(len(name) for name, _ in facts) + 3
    yield from (f"{name + ':':<{width}}{value}" for name, value in facts)


def _describe_restarts(jobset: Object | None) -> str:
    if jobset is None:
        return ""
    count = int((jobset.get("status") or {}).get("restarts") or 0)
    most = (jobset["spec"].get("failurePolicy") or {}).get("maxRestarts")
    if not count and not most:
        return ""
    return f"{count} of {most}" if most is not None else str(count)


def _describe_terms(story: JobStory) -> Iterator[tuple[str, str]]:
    deadline = find_deadline(story.trainjob, story.runtime)
    if deadline is not None:
        yield "Deadline", f"{show_span(deadline.seconds)} of activity ({deadline.source})"
    ttl = find_ttl(story.trainjob, story.runtime, story.policy)
    if ttl is None:
        yield "Retention", "kept until somebody deletes it"
    else:
        yield "Retention", f"deleted {show_span(ttl.seconds)} after its end ({ttl.source})"


def _tell_ranks(context: CommandContext, story: JobStory) -> list[str]:
    placed = [(place, pod) for pod in story.pods if (place := find_place(pod)) is not None]
    if not placed:
        return []
    header = ("RANK", "STATE", "EXIT", "RESTARTS", "ATTEMPT", "NODE", "POD", "AGE")
    rows = [_build_rank(place, pod, story.now) for place, pod in sorted(placed, key=lambda entry: _sort_key(entry[0]))]
    return build_table(context, header, rows, styles={"STATE": _style_phase}, indent=2)


def _sort_key(place: PodPlace) -> tuple[Any, ...]:
    return place.attempt, place.job, place.job_index, place.index, place.pod


def _style_phase(word: str) -> str:
    return {"Running": terminal.GOOD, "Succeeded": terminal.GOOD, "Pending": terminal.WAIT}.get(word, terminal.BAD)


def _build_rank(place: PodPlace, pod: Object, now: datetime) -> tuple[str, ...]:
    status = pod.get("status") or {}
    word, code = describe_pod(pod)
    restarts = sum(int(one.get("restartCount") or 0) for one in status.get("containerStatuses") or ())
    return (
        f"{place.job} {place.index}",
        word,
        code,
        str(restarts),
        str(place.attempt),
        pod["spec"].get("nodeName") or "-",
        place.pod,
        show_age(pod["metadata"].get("creationTimestamp"), now),
    )


def describe_pod(pod: Mapping[str, Any]) -> tuple[str, str]:
    """(state in a word, exit code or -)"""
    status = pod.get("status") or {}
    word, code = str(status.get("phase") or "Pending"), "-"
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = one.get("state") or {}
        ended = state.get("terminated") or (one.get("lastState") or {}).get("terminated")
        if ended and (ended.get("exitCode") or "terminated" in state):
            code = str(ended.get("exitCode", "-"))
        if word in ("Pending", "Running") and (state.get("waiting") or {}).get("reason"):
            word = state["waiting"]["reason"]
        elif word == "Failed" and (state.get("terminated") or {}).get("reason") not in (None, "Error", "Completed"):
            word = state["terminated"]["reason"]
    if word in ("Pending", "Failed") and status.get("reason"):
        word = status["reason"]
    return ("Terminating" if pod["metadata"].get("deletionTimestamp") else word), code


def _tell_conditions(context: CommandContext, story: JobStory) -> list[str]:
    rows = [
        (
            condition.get("type", ""),
            condition.get("status", ""),
            condition.get("reason", ""),
            show_age(condition.get("lastTransitionTime"), story.now),
            _shorten(condition.get("message", ""), FIRST_FAILURE),
        )
        for condition in list_conditions(story.trainjob)
    ]
    return build_table(context, ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), rows, indent=2) if rows else []


def _shorten(message: str, *ends: str) -> str:
    """Without what stands elsewhere on the page: who failed first, and its last words."""
    for end in (*ends, LAST_WORDS):
        message = message.partition(end)[0]
    return message


def _tell_failure(story: JobStory) -> list[str]:
    failure = (story.trainjob.get("status") or {}).get("failure") or {}
    if not failure.get("message"):
        return []
    code = f"exit code {failure['exitCode']}" if failure.get("exitCode") is not None else failure.get("reason", "")
    who = f"{failure.get('replicatedJob') or failure.get('job')} {failure.get('rank', 0)}"
    head = f"{who}, attempt {failure.get('attempt', 0)}, {code}"
    return [head, *(f"  {terminal.clean(line)}" for line in failure["message"].splitlines())]


def _tell_events(context: CommandContext, story: JobStory) -> list[str]:
    """The newest last; what is long stands below its head, so that it can be read on any terminal."""
    lines = []
    for event in sorted(story.events, key=_get_last)[-_EVENTS:]:
        about, count = event.get("involvedObject") or {}, int(event.get("count") or 1)
        times = f" (x{count})" if count > 1 else ""
        age = show_age(_get_last(event) or None, story.now)
        warning = event.get("type") == "Warning"
        reason = terminal.clean(event.get("reason", ""))
        head = _paint(context, reason, terminal.WAIT) if warning else reason
        lines.append(f"{age:<6} {head}{times}  {about.get('kind', '')}/{about.get('name', '')}")
        lines += [f"       {line}" for line in terminal.wrap(context, _shorten(event.get("message", "")), 9)]
    return lines


def _get_last(event: Object) -> str:
    series = event.get("series") or {}
    found = event.get("lastTimestamp") or series.get("lastObservedTime") or event.get("eventTime")
    return str(found or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp") or "")


def _tell_next(story: JobStory) -> list[str]:
    meta = story.trainjob["metadata"]
    where = "" if meta["namespace"] == "default" else f" -n {meta['namespace']}"
    name, word = meta["name"] + where, TrainJob(story.trainjob).state.word
    commands = {
        trainjobs.WAITING: [("explain", "why it does not run, and what would start it")],
        trainjobs.STARTING: [("logs -f", "what it prints, from the start")],
        trainjobs.RUNNING: [("logs -f", "what it prints")],
        trainjobs.SUSPENDED: [("resume", "let it go on")],
        trainjobs.FAILED: [("logs", "what it printed last"), ("restart", "submit it again under a new name")],
        trainjobs.COMPLETE: [("logs", "what it printed last")],
        trainjobs.DELETING: [("doctor trainjob", "what keeps it, when it does not go")],
    }[word]
    lines = [(f"trainmaster {command} {name}", text) for command, text in commands]
    if story.outputs:
        lines.append((f"{story.outputs} {name}", "what it wrote"))
    width = max(len(command) for command, _ in lines)
    return [f"{command:<{width}}   {text}" for command, text in lines]
