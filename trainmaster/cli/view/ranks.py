"""One rank, read from its Pod: its state, why it is waiting, how it ended. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_text
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models.pods import Pod, read_running, read_terminated, read_waiting

WAITING, STARTING, RUNNING = "waiting", "starting", "running"
STOPPING, STOPPED, DONE, FAILED = "stopping", "stopped", "done", "failed"
_ORDINARY = ("ContainerCreating", "PodInitializing")
_QUIET = (0, None)


@dataclass(frozen=True, slots=True)
class Rank:
    job: str
    """The replicated job: usually `node`; with MPI also `launcher`."""
    index: int
    attempt: int
    state: str
    pod: str
    uid: str
    detail: str = ""
    """Why it is waiting, or how it failed, in a few words."""
    started: str = ""
    finished: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return self.job, self.index


def read_rank(raw: Object) -> Rank:
    pod = Pod(raw)
    place = find_place(raw)
    container = _choose_container(pod)
    word, detail = _describe(pod, container)
    ended = read_terminated(container)
    return Rank(
        job="node" if place is None else place.job,
        index=0 if place is None else place.job_index + place.index,
        attempt=0 if place is None else place.attempt,
        state=word,
        pod=pod.name,
        uid=pod.uid,
        detail=detail,
        started=read_text(read_running(container), "startedAt") or read_text(ended, "startedAt"),
        finished=read_text(ended, "finishedAt"),
    )


def _choose_container(pod: Pod) -> Fields:
    """The status of the container that failed first, else of the trainer container; empty if there is none yet."""
    entries = pod.all_container_statuses
    for entry in entries:
        if read_terminated(entry).get("exitCode") not in _QUIET:
            return entry
    for entry in entries:
        if read_waiting(entry).get("message"):
            return entry
    return next((entry for entry in reversed(entries) if entry.get("name") == "node"), {})


def _describe(pod: Pod, container: Fields) -> tuple[str, str]:
    if pod.phase == "Succeeded":
        return DONE, ""
    if pod.phase == "Failed" and pod.is_deleting:
        return STOPPED, ""  # it was stopped, because another rank failed or the user asked for it
    if pod.phase == "Failed":
        return FAILED, describe_end(read_terminated(container)) or pod.reason
    if pod.is_deleting:
        return STOPPING, ""
    if pod.is_running:
        return RUNNING, ""
    waiting = read_waiting(container)
    if waiting.get("reason") in _ORDINARY and waiting.get("message"):
        return WAITING, str(waiting["message"])
    if waiting and waiting.get("reason") not in _ORDINARY:
        return WAITING, ": ".join(text for text in (waiting.get("reason"), waiting.get("message")) if text)
    scheduled = pod.find_condition("PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return WAITING, read_text(scheduled, "message") or read_text(scheduled, "reason")
    return (STARTING, "") if pod.node else (WAITING, "")


def describe_end(ended: Fields) -> str:
    """exit code 7, SIGKILL (OOMKilled), ..."""
    code = ended.get("exitCode")
    if code is None:
        return str(ended.get("reason", ""))
    name = name_signal(ended.get("signal") or (code - 128 if 128 < code < 255 else 0))
    reason = ended.get("reason")
    extra = f" ({reason})" if reason not in (None, "", "Error", "Completed") else ""
    return (name or f"exit code {code}") + extra


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
