"""Determines which rank failed first, and how, for `status.failure` and the end of a Failed message.

Read from the statuses of Pods. A restart deletes the gang's Pods, so the result is kept in the status: the first
failure of the newest attempt that had one. Pods are examined only if a Job has counted a failure. The program's last
lines are the termination message of its container; the node puts the end of the log there if the program wrote none.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from trainmaster.api import labels
from trainmaster.api.formats.numbers import find_count
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.training.failures import LAST_WORDS
from trainmaster.api.training.restarts import read_first
from trainmaster.client.view import View
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod, read_terminated
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.timeline import Now

REASON = "RankFailed"
_LINES, _BYTES = 12, 1024
"""The maximum length of the last lines: enough for the end of a traceback, and it must fit into a condition."""
_PATIENCE = 2.0
"""Seconds."""
_NOT_SIGNALS = frozenset({255})


def find_failure(view: View, trainjob: TrainJob, jobset: JobSet) -> Fields | None:
    """The first failure of the newest attempt: the stored one, otherwise from the Pods."""
    stored = trainjob.failure
    if jobset.is_suspended:
        # Pods of a suspended job end because they were stopped.
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


def get_pause(view: View, jobset: JobSet, failure: Fields | None, now: Now) -> float:
    """Seconds to wait before reporting a failed JobSet, because the Pod that explains it is not in the view yet. On a
    cluster, caches are updated separately. An embedded view shows everything at once, so there a missing Pod means that
    somebody deleted it."""
    failed = jobset.find_condition("Failed")
    if failed is None or failed.get("status") != "True" or not failed.get("lastTransitionTime"):
        return 0.0
    left = now.left(jobset.uid, "verdict", failed["lastTransitionTime"], _PATIENCE)
    is_known = failure is not None and failure.get("attempt", 0) >= jobset.attempt
    return 0.0 if is_known or not _can_be_explained(view, jobset) else max(left, 0.0)


def _can_be_explained(view: View, jobset: JobSet) -> bool:
    jobs = [Job(job) for job in view.owned(JOBS, jobset.namespace, jobset.uid)]
    ends = (job.find_condition("Failed") for job in jobs)
    return bool(jobs) and not any(read_text(end, "reason") == "DeadlineExceeded" for end in ends)


def _list_failed_jobs(view: View, jobset: JobSet) -> Iterator[Job]:
    for job in map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)):
        if job.failed or job.is_true("FailureTarget") or job.is_true("Failed"):
            yield job


def _list_failed_pods(view: View, job: Job) -> Iterator[Pod]:
    """The Pods that failed by themselves and were not stopped."""
    for pod in map(Pod, view.owned(PODS, job.namespace, job.uid)):
        if pod.phase != "Failed":
            continue
        deleted = pod.meta.get("deletionTimestamp")
        grace = timedelta(seconds=pod.meta.get("deletionGracePeriodSeconds") or 0)
        if not deleted or _find_end(pod) <= format_time(parse_time(deleted) - grace):
            yield pod


def _describe(pod: Pod, job: Job) -> tuple[Fields, tuple[str, int, str]]:
    """The failure and its sort key. Times are in whole seconds; among equal ones, the Pod written first counts."""
    own = {**pod.annotations, **pod.labels}
    container = _choose_container(pod)
    ended = read_terminated(container)
    code = ended.get("exitCode")
    failure: Object = {
        "attempt": read_first(pod.raw) + _count_restarts(own),
        "job": job.name,
        "replicatedJob": own.get(labels.REPLICATED_JOB_NAME),
        "jobIndex": _read_number(own.get(labels.JOB_INDEX)),
        "rank": _read_number(own.get(labels.COMPLETION_INDEX)),
        "pod": pod.name,
        "container": container.get("name"),
        "exitCode": code,
        "signal": ended.get("signal") or _find_signal(code),
        "reason": ended.get("reason") or pod.status.get("reason"),
        "message": _cut(ended.get("message") or read_text(pod.status, "message")),
        "finishedAt": _find_end(pod),
    }
    version = pod.resource_version
    key = (failure["finishedAt"], int(version) if version.isdecimal() else 0, pod.name)
    return {name: value for name, value in failure.items() if value not in (None, "")}, key


def _count_restarts(marks: Mapping[str, str]) -> int:
    """The restarts of its JobSet before it, of the whole gang or of its Job alone."""
    counts = (_read_number(marks.get(key)) for key in (labels.RESTART_ATTEMPT, labels.JOB_RESTART_ATTEMPT))
    return sum(count or 0 for count in counts)


def _choose_container(pod: Pod) -> Fields:
    """The status of the container that failed first; empty if none has failed."""
    failed = [entry for entry in pod.all_container_statuses if read_terminated(entry).get("exitCode")]
    return min(failed, key=lambda entry: read_text(read_terminated(entry), "finishedAt"), default={})


def _find_end(pod: Pod) -> str:
    """When the Pod failed; its creation time if the status does not say."""
    ended = [read_terminated(entry) for entry in pod.all_container_statuses]
    times = (end.get("finishedAt") for end in ended if end.get("exitCode"))
    return min((time for time in times if time), default=pod.created_at)


def _find_signal(code: int | None) -> int | None:
    """Shells and container runtimes report 128 plus the signal number."""
    if code is None or code <= 128 or code in _NOT_SIGNALS:
        return None
    return code - 128 if _name_signal(code - 128) else None


def _name_signal(number: int) -> str | None:
    return signal.Signals(number).name if number in signal.Signals._value2member_map_ else None


def _read_number(text: str | None) -> int | None:
    return find_count(text)


def _cut(text: str) -> str:
    """The last lines, and only the end of a very long line."""
    lines: Sequence[str] = text.strip().splitlines()
    raw = "\n".join(lines[-_LINES:]).encode()
    return raw[-_BYTES:].decode(errors="ignore").strip()


def describe(failure: Fields) -> str:
    """For messages: which rank, how it failed, and the last lines."""
    who = f"Pod {failure['pod']}" if "rank" not in failure else f"rank {failure['rank']} of job {failure['job']}"
    if "container" in failure:
        who += f" (Pod {failure['pod']}, container {failure['container']})"
    text = f"first failure: {who} {_describe_end(failure)}"
    return f"{text}{LAST_WORDS}\n{failure['message']}" if failure.get("message") else text


def _describe_end(failure: Fields) -> str:
    reason = failure.get("reason", "")
    if "signal" in failure:
        name = _name_signal(failure["signal"]) or f"signal {failure['signal']}"
        code = f" (exit code {failure['exitCode']}{', ' if reason else ''}{reason})"
        return f"was ended by {name}{code}"
    known = "" if reason in ("", "Error") else f" ({reason})"
    return f"ended with exit code {failure['exitCode']}{known}" if "exitCode" in failure else f"failed{known}"


def map_failed_job(view: View, obj: Object) -> Iterable[Request]:
    """The TrainJob whose Job has counted a failure. It has the same name as its JobSet."""
    job = Job(obj)
    owner = job.controller
    if owner is None or owner.get("kind") != "JobSet" or not job.failed:
        return ()
    return (Request(job.namespace, owner["name"]),)
