"""The model of the live view: it receives objects and log lines and computes a `Screen`. Pure.

`session` feeds it from the server; `draw` and `plain` show it. It uses no terminal and no clock: the time is passed in.
Every change is also a `JobNews`, reported once, for views that print lines.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.api.training.reports import STEP, TOTAL
from trainmaster.cli.view.ranks import DONE as RANK_DONE
from trainmaster.cli.view.ranks import FAILED as RANK_FAILED
from trainmaster.cli.view.ranks import RUNNING as RANK_RUNNING
from trainmaster.cli.view.ranks import STOPPED as RANK_STOPPED
from trainmaster.cli.view.ranks import WAITING as RANK_WAITING
from trainmaster.cli.view.ranks import Rank, describe_end, read_rank
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.training import STALLED, TrainingJob, shorten_waiting
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import parse_time

SUBMITTED, WAITING, STARTING, RUNNING = "Submitted", "Waiting", "Starting", "Running"
RESTARTING, SUSPENDED, COMPLETE, FAILED, DELETED = "Restarting", "Suspended", "Complete", "Failed", "Deleted"
ENDS = (COMPLETE, FAILED, DELETED)
_DERIVED = re.compile(r"-[0-9a-f]{10}$")
"""The suffix that a derived runtime's name adds to that of its original."""
_CURVE = 400
"""Number of values of a metric to keep for its curve."""
_LINES = 400
"""Number of lines to keep for each rank, enough for the traceback of one that failed."""


@dataclass(frozen=True, slots=True)
class JobNews:
    """One change, for views that print lines."""

    kind: str
    """state, rank, progress or restart."""
    text: str


@dataclass
class Screen:
    """The data to show."""

    name: str
    namespace: str = "default"
    runtime: str = ""
    nodes: int = 0
    processes: str = ""
    state: str = SUBMITTED
    reason: str = ""
    message: str = ""
    until: str = ""
    """When the wait ends, if known."""
    created: str = ""
    ended: str = ""
    restarts: int = 0
    ranks: list[Rank] = field(default_factory=list)
    progress: float | None = None
    remaining: int | None = None
    step: str = ""
    """For example 12/40, if the program reports it."""
    metrics: dict[str, list[float]] = field(default_factory=dict)
    """Name to its values, newest last."""
    failure: Fields | None = None
    offline: str = ""
    """Why the server does not answer; "" if it does."""

    @property
    def is_over(self) -> bool:
        return self.state in ENDS


class Model:
    def __init__(self, name: str, namespace: str = "default", *, nodes: int = 1) -> None:
        """`nodes`: their number if the job does not set it."""
        self.screen = Screen(name, namespace)
        self._default_nodes = nodes
        self._pods: dict[str, tuple[Rank, str]] = {}
        """Pod uid to (rank, creation time)."""
        self._uid = ""
        self.kind: type[TrainingJob] = TrainJob
        self._news: list[JobNews] = []
        self._reported = ""
        self._told: set[tuple[str, ...]] = set()
        self._lines: dict[int, tuple[int, deque[str]]] = {}
        """Rank to (attempt, lines printed in it)."""

    def take_news(self) -> list[JobNews]:
        news, self._news = self._news, []
        return news

    # ---- input ----------------------------------------------------------------

    def see_trainjob(self, trainjob: Object) -> None:
        job = read_training_job(trainjob)
        uid = job.meta.get("uid", "")
        if self._uid not in ("", uid):
            self.see_deleted()  # another job of the same name
            return
        self._uid, self.kind = uid, type(job)
        screen = self.screen
        screen.runtime = _DERIVED.sub("", job.runtime.get("name", ""))
        screen.nodes = job.nodes or self._default_nodes
        screen.processes = read_text(job.spec, "trainer", "numProcPerNode")
        screen.created = job.created_at
        screen.failure = job.failure
        self._see_progress(job.report)
        before = screen.state, screen.reason
        self._find_state(job)
        if (screen.state, screen.reason) != before:
            self._tell("state", _describe_state(screen))

    def see_earlier(self, reports: Iterable[Mapping[str, float]]) -> None:
        """Takes the metrics of reports before the current one, oldest first, for the curves."""
        for report in reports:
            self._extend_curves({name: value for name, value in report.items() if name not in (STEP, TOTAL)})

    def see_pod(self, pod: Object, *, gone: bool = False) -> None:
        uid = pod["metadata"]["uid"]
        if gone:
            self._forget(uid)
        else:
            rank = read_rank(pod)
            self._pods[uid] = rank, pod["metadata"].get("creationTimestamp", "")
            self._tell_rank(rank)
        self._order_ranks()

    def _forget(self, uid: str) -> None:
        """A deleted Pod still shows how its rank ended, until another Pod replaces it."""
        known = self._pods.get(uid)
        if known is not None and known[0].state not in (RANK_FAILED, RANK_DONE):
            self._pods[uid] = replace(known[0], state=RANK_STOPPED, detail=""), known[1]

    def see_line(self, rank: int, text: str, attempt: int = 0) -> None:
        newest, kept = self._lines.get(rank) or (attempt, deque[str](maxlen=_LINES))
        if attempt > newest:
            kept.clear()
        kept.append(text)
        self._lines[rank] = max(attempt, newest), kept

    def see_deleted(self) -> None:
        if self.screen.state not in (COMPLETE, FAILED):
            self.screen.state, self.screen.reason, self.screen.message = DELETED, "", "somebody deleted it"
            self._tell("state", _describe_state(self.screen))

    def list_lines(self, rank: int) -> list[str]:
        """The last lines that the rank printed in its newest attempt."""
        return list(self._lines[rank][1]) if rank in self._lines else []

    # ---- state ----------------------------------------------------------------

    def _find_state(self, job: TrainingJob) -> None:
        screen = self.screen
        screen.reason = screen.message = screen.until = ""
        condition = job.end_condition
        if condition is not None:
            screen.state, screen.ended = job.state_ignoring_deletion.word, condition.get("lastTransitionTime", "")
            screen.reason, screen.message = condition.get("reason", ""), condition.get("message", "")
            return
        waiting = job.waiting
        if job.is_true(SUSPENDED):
            screen.state, screen.message = SUSPENDED, "nothing of it runs until it is resumed"
        elif waiting:
            screen.state = RESTARTING if waiting.get("reason") == "RestartBackOff" else WAITING
            screen.reason, screen.message = waiting.get("reason", ""), shorten_waiting(waiting.get("message", ""))
            screen.until = waiting.get("until", "")
        else:
            screen.state = self._state_of_ranks(job)
            if job.stalled:
                screen.reason, screen.message = STALLED, read_text(job.stalled, "message")

    def _state_of_ranks(self, job: TrainingJob) -> str:
        if any(rank.state == RANK_RUNNING for rank in self.screen.ranks):
            return RUNNING
        active = job.is_active
        if self.screen.state == RUNNING or (active and not self.screen.ranks):
            return RUNNING if self.screen.state == RUNNING else STARTING
        return STARTING if self.screen.ranks or active or self.screen.state == STARTING else SUBMITTED

    def _order_ranks(self) -> None:
        """The newest Pod of every rank."""
        newest: dict[tuple[str, int], tuple[tuple[int, str], Rank]] = {}
        for rank, created in self._pods.values():
            order = (rank.attempt, created)
            if rank.key not in newest or order >= newest[rank.key][0]:
                newest[rank.key] = order, rank
        # Ignore Pods of earlier attempts.
        self._pods = {rank.uid: self._pods[rank.uid] for _, rank in newest.values()}
        screen = self.screen
        screen.ranks = [rank for _, (_, rank) in sorted(newest.items())]
        attempt = max((rank.attempt for rank in screen.ranks), default=0)
        if attempt > screen.restarts:
            screen.restarts = attempt
            self._tell("restart", f"restart {attempt}: all ranks start again")
        if screen.state in (SUBMITTED, STARTING, RUNNING) and screen.ranks:
            running = any(rank.state == RANK_RUNNING for rank in screen.ranks)
            state = RUNNING if running or screen.state == RUNNING else STARTING
            if state != screen.state:
                screen.state = state
                self._tell("state", _describe_state(screen))

    def _tell_rank(self, rank: Rank) -> None:
        if rank.state == RANK_FAILED:
            text = f"{name_rank(rank)} failed: {rank.detail or 'no exit code'}"
        elif rank.state == RANK_WAITING and rank.detail and not self.screen.reason:
            text = f"{name_rank(rank)} waits: {rank.detail}"
        else:
            return
        if (rank.uid, rank.state, rank.detail) not in self._told:
            self._told.add((rank.uid, rank.state, rank.detail))
            self._tell("rank", text)

    def _see_progress(self, report: Fields) -> None:
        screen, when = self.screen, str(report.get("lastUpdatedTime", ""))
        percent, remaining = report.get("progressPercentage"), report.get("estimatedRemainingSeconds")
        screen.remaining = remaining
        metrics: Sequence[Fields] = list_items(report, "metrics")
        values = {entry["name"]: number for entry in metrics if (number := _read(entry)) is not None}
        step, total = values.pop(STEP, None), values.pop(TOTAL, None)
        if step is not None:
            screen.step = show(step) if total is None else f"{step:.0f}/{total:.0f}"
        if percent is not None and percent != screen.progress:
            screen.progress = float(percent)
            self._tell("progress", " ".join([f"{percent} %", *(f"{name} {show(v)}" for name, v in values.items())]))
        fingerprint = f"{when} {step} {percent} {sorted(values.items())}"
        if values and fingerprint != self._reported:
            self._reported = fingerprint
            self._extend_curves(values)

    def _extend_curves(self, values: Mapping[str, float]) -> None:
        for name, number in values.items():
            kept = self.screen.metrics.setdefault(name, [])
            kept.append(number)
            del kept[:-_CURVE]

    def _tell(self, kind: str, text: str) -> None:
        self._news.append(JobNews(kind, text))


def _read(metric: Fields) -> float | None:
    try:
        number = float(metric.get("value", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def show(number: float) -> str:
    """Formats a number with four digits."""
    return f"{number:.4g}"


def name_rank(rank: Rank) -> str:
    return f"rank {rank.index}" if rank.job == "node" else f"{rank.job} {rank.index}"


def _describe_state(screen: Screen) -> str:
    words = [screen.state]
    if screen.state in (WAITING, RESTARTING) or screen.reason == STALLED:
        words.append(f"({screen.reason})" if screen.reason else "")
    text = " ".join(word for word in words if word)
    # The message of a failed job is long and is shown at the end of the run.
    return f"{text}: {screen.message}" if screen.message and screen.state not in (FAILED, COMPLETE) else text


def describe_failure(failure: Fields, word: str = "rank") -> str:
    """rank 1 ended with exit code 7; rank 0 was ended by SIGKILL (OOMKilled)."""
    job = failure.get("replicatedJob", "node")
    who = f"{word} {failure['rank']}" if "rank" in failure and job == "node" else f"{job} {failure.get('rank', 0)}"
    how = describe_end(failure) or "an unknown reason"
    verb = "was ended by" if how.startswith("SIG") else "ended with" if how.startswith("exit") else "failed:"
    return f"{who} {verb} {how}"


def find_exit_code(failure: Fields | None) -> int | None:
    """The exit code of the first rank that failed, or 128 + signal; None if no rank failed."""
    if failure is None:
        return None
    if failure.get("signal"):
        return 128 + int(failure["signal"])
    code = failure.get("exitCode")
    return None if code is None else int(code) or 1


def get_elapsed(screen: Screen, now: datetime) -> float:
    """Seconds from its submission to its end, or until now."""
    if not screen.created:
        return 0.0
    end = parse_time(screen.ended) if screen.ended else now
    return max(0.0, (end - parse_time(screen.created)).total_seconds())
