"""Which rank failed first, and how: `status.failure`, and the end of a Failed message.

Read from the statuses of Pods. When a gang restarts its Pods go, so what a pass sees is kept in the status: the first
failure of the newest attempt that had one. Looked for only where a Job has counted a failure; other passes ask no Pod.
The last lines of the program are what its container left as termination message; the node puts the end of the log
there when the program wrote none.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainmaster.api import labels
from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.numbers import find_count
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.training.failures import LAST_WORDS
from trainmaster.client.view import View
from trainmaster.controllers.ownership import find_controller
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.timeline import Now

REASON = "RankFailed"
_LINES, _BYTES = 12, 1024
"""So much of a program's last words is kept: a traceback's end, and it must fit into a condition."""
_PATIENCE = 2.0
"""Seconds."""
_NOT_SIGNALS = frozenset({255})

Failure = Mapping[str, Any]


def find_failure(view: View, trainjob: Object, jobset: Object) -> Failure | None:
    """The first failure of the newest attempt: what is stored of it, else what Pods say."""
    stored: Failure | None = (trainjob.get("status") or {}).get("failure")
    if jobset["spec"].get("suspend"):
        # What ends now was stopped; and nothing wakes a suspended job for a Pod that is seen late.
        return stored
    found = [_describe(pod, job) for job in _list_failed_jobs(view, jobset) for pod in _list_failed_pods(view, job)]
    if not found:
        return stored
    newest = max(failure["attempt"] for failure, _ in found)
    first, _ = min((entry for entry in found if entry[0]["attempt"] == newest), key=lambda entry: entry[1])
    if stored is None or stored.get("attempt", 0) < newest:
        return first
    earlier = stored.get("attempt") == newest and first["finishedAt"] < stored.get("finishedAt", "")
    return first if earlier else stored


def find_pause(view: View, jobset: Object, failure: Failure | None, now: Now) -> float:
    """Seconds for which a failed JobSet is not believed yet, because the Pod that explains it is not seen. Caches of a
    cluster come separately; a store shows all at once, and there this means that somebody has removed the Pod."""
    failed = find_condition(list_conditions(jobset), "Failed")
    if failed is None or failed.get("status") != "True" or not failed.get("lastTransitionTime"):
        return 0.0
    meta = jobset["metadata"]
    left = now.left(meta["uid"], "verdict", failed["lastTransitionTime"], _PATIENCE)
    is_known = failure is not None and failure.get("attempt", 0) >= (jobset.get("status") or {}).get("restarts", 0)
    return 0.0 if is_known or not _can_be_explained(view, jobset) else max(left, 0.0)


def _can_be_explained(view: View, jobset: Object) -> bool:
    jobs = view.owned(JOBS, jobset["metadata"]["namespace"], jobset["metadata"]["uid"])
    ends = [condition for job in jobs if (condition := find_condition(list_conditions(job), "Failed")) is not None]
    return bool(jobs) and not any(condition.get("reason") == "DeadlineExceeded" for condition in ends)


def _list_failed_jobs(view: View, jobset: Object) -> Iterator[Object]:
    for job in view.owned(JOBS, jobset["metadata"]["namespace"], jobset["metadata"]["uid"]):
        conditions = list_conditions(job)
        ended = is_true(conditions, "FailureTarget") or is_true(conditions, "Failed")
        if ended or (job.get("status") or {}).get("failed"):
            yield job


def _list_failed_pods(view: View, job: Object) -> Iterator[Object]:
    """Those that failed by themselves, and were not stopped."""
    for pod in view.owned(PODS, job["metadata"]["namespace"], job["metadata"]["uid"]):
        if (pod.get("status") or {}).get("phase") != "Failed":
            continue
        deleted = pod["metadata"].get("deletionTimestamp")
        grace = timedelta(seconds=pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if not deleted or _find_end(pod) <= format_time(parse_time(deleted) - grace):
            yield pod


def _describe(pod: Object, job: Object) -> tuple[Failure, tuple[str, int, str]]:
    """The failure, and what it is sorted by. Times have seconds, so of two the Pod that was written first counts."""
    meta, status = pod["metadata"], pod.get("status") or {}
    own = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    container = _find_container(pod)
    ended = (container or {}).get("state", {}).get("terminated") or {}
    code = ended.get("exitCode")
    failure: dict[str, Any] = {
        "attempt": _read_attempt(own),
        "job": job["metadata"]["name"],
        "replicatedJob": own.get(labels.REPLICATED_JOB_NAME),
        "jobIndex": _read_number(own.get(labels.JOB_INDEX)),
        "rank": _read_number(own.get(labels.COMPLETION_INDEX)),
        "pod": meta["name"],
        "container": (container or {}).get("name"),
        "exitCode": code,
        "signal": ended.get("signal") or _find_signal(code),
        "reason": ended.get("reason") or status.get("reason"),
        "message": _cut(ended.get("message") or status.get("message") or ""),
        "finishedAt": _find_end(pod),
    }
    version = meta.get("resourceVersion", "")
    key = (failure["finishedAt"], int(version) if version.isdecimal() else 0, meta["name"])
    return {name: value for name, value in failure.items() if value not in (None, "")}, key


def _read_attempt(marks: Mapping[str, str]) -> int:
    """How often it was restarted before, with the whole gang or alone."""
    counts = (_read_number(marks.get(key)) for key in (labels.RESTART_ATTEMPT, labels.JOB_RESTART_ATTEMPT))
    return sum(count or 0 for count in counts)


def _list_containers(pod: Object) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _find_container(pod: Object) -> Mapping[str, Any] | None:
    """The container that failed first."""
    failed = [entry for entry in _list_containers(pod) if _get_end(entry).get("exitCode")]
    return min(failed, key=lambda entry: _get_end(entry).get("finishedAt") or "", default=None)


def _get_end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return (container.get("state") or {}).get("terminated") or {}


def _find_end(pod: Object) -> str:
    """When it failed. A Pod that says nothing about it counts from its birth."""
    ends = [_get_end(entry).get("finishedAt") for entry in _list_containers(pod) if _get_end(entry).get("exitCode")]
    return min((end for end in ends if end), default=str(pod["metadata"].get("creationTimestamp", "")))


def _find_signal(code: int | None) -> int | None:
    """Shells and container runtimes add 128."""
    if code is None or code <= 128 or code in _NOT_SIGNALS:
        return None
    return code - 128 if _name_signal(code - 128) else None


def _name_signal(number: int) -> str | None:
    return signal.Signals(number).name if number in signal.Signals._value2member_map_ else None


def _read_number(text: str | None) -> int | None:
    return find_count(text)


def _cut(text: str) -> str:
    """The last lines, and of a very long line its end."""
    lines: Sequence[str] = text.strip().splitlines()
    raw = "\n".join(lines[-_LINES:]).encode()
    return raw[-_BYTES:].decode(errors="ignore").strip()


def describe(failure: Failure) -> str:
    """For people: who, how, and the last words."""
    who = f"Pod {failure['pod']}" if "rank" not in failure else f"rank {failure['rank']} of job {failure['job']}"
    if "container" in failure:
        who += f" (Pod {failure['pod']}, container {failure['container']})"
    text = f"first failure: {who} {_describe_end(failure)}"
    return f"{text}{LAST_WORDS}\n{failure['message']}" if failure.get("message") else text


def _describe_end(failure: Failure) -> str:
    reason = failure.get("reason", "")
    if "signal" in failure:
        name = _name_signal(failure["signal"]) or f"signal {failure['signal']}"
        code = f" (exit code {failure['exitCode']}{', ' if reason else ''}{reason})"
        return f"was ended by {name}{code}"
    known = "" if reason in ("", "Error") else f" ({reason})"
    return f"ended with exit code {failure['exitCode']}{known}" if "exitCode" in failure else f"failed{known}"


def map_failed_job(view: View, job: Object) -> Iterable[Request]:
    """The TrainJob whose Job has counted a failure. It has the name of its JobSet."""
    owner = find_controller(job)
    if owner is None or owner.get("kind") != "JobSet" or not (job.get("status") or {}).get("failed"):
        return ()
    return (Request(job["metadata"].get("namespace", ""), owner["name"]),)
