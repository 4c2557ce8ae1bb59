"""One rank as its Pod shows it: a word for its state, why it waits, how it ended. Pure; part of the model."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.training.restarts import read_first

WAITING, STARTING, RUNNING = "waiting", "starting", "running"
STOPPING, STOPPED, DONE, FAILED = "stopping", "stopped", "done", "failed"
_ORDINARY = ("ContainerCreating", "PodInitializing")
_QUIET = (0, None)


@dataclass(frozen=True, slots=True)
class Rank:
    job: str
    """The job of the runtime: `node` nearly always, `launcher` beside it under MPI."""
    index: int
    attempt: int
    state: str
    pod: str
    uid: str
    detail: str = ""
    """Why it waits, or how it failed, in a few words."""
    started: str = ""
    finished: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return self.job, self.index


def read_rank(pod: Object) -> Rank:
    meta, status = pod["metadata"], pod.get("status") or {}
    marks = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    container = _find_container(status)
    state = (container or {}).get("state") or {}
    word, detail = _describe(pod, status, state)
    ended = state.get("terminated") or {}
    return Rank(
        job=marks.get(labels.REPLICATED_JOB_NAME, "node"),
        index=_read_number(marks, labels.JOB_INDEX) + _read_number(marks, labels.COMPLETION_INDEX),
        attempt=read_first(pod) + _read_number(marks, labels.RESTART_ATTEMPT),
        state=word,
        pod=meta["name"],
        uid=meta["uid"],
        detail=detail,
        started=(state.get("running") or {}).get("startedAt") or ended.get("startedAt") or "",
        finished=ended.get("finishedAt") or "",
    )


def _read_number(marks: Mapping[str, str], key: str) -> int:
    text = marks.get(key, "")
    return int(text) if text.isdecimal() else 0


def _find_container(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one that says most: the first that failed, else the one that trains."""
    entries = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for entry in entries:
        if ((entry.get("state") or {}).get("terminated") or {}).get("exitCode") not in _QUIET:
            return dict(entry)
    for entry in entries:
        if (entry.get("state") or {}).get("waiting", {}).get("message"):
            return dict(entry)
    return next((dict(entry) for entry in reversed(entries) if entry.get("name") == "node"), None)


def _describe(pod: Object, status: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[str, str]:
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return DONE, ""
    if phase == "Failed" and "deletionTimestamp" in pod["metadata"]:
        return STOPPED, ""  # it was asked to end, because another rank failed or somebody wanted it
    if phase == "Failed":
        return FAILED, describe_end(state.get("terminated") or {}) or str(status.get("reason", ""))
    if "deletionTimestamp" in pod["metadata"]:
        return STOPPING, ""
    if phase == "Running":
        return RUNNING, ""
    waiting = state.get("waiting") or {}
    if waiting.get("reason") in _ORDINARY and waiting.get("message"):
        return WAITING, str(waiting["message"])
    if waiting and waiting.get("reason") not in _ORDINARY:
        return WAITING, ": ".join(text for text in (waiting.get("reason"), waiting.get("message")) if text)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return WAITING, str(condition.get("message") or condition.get("reason") or "")
    return (STARTING, "") if pod["spec"].get("nodeName") else (WAITING, "")


def describe_end(ended: Mapping[str, Any]) -> str:
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
