"""Determines which rank failed first, and how, for `status.failure` and the end of a Failed message.

Read from the statuses of Pods. A restart deletes the gang's Pods, so the result is kept in the status: the first
failure of the newest attempt that had one. Pods are examined only if a Job has counted a failure. The program's last
lines are the termination message of its container; the node puts the part of the log there that shows the error if the
program wrote none.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from trainmaster.shim.output.cause import excerpt, read_cause
from trainmaster.shim.output.launcher import name_signal

REASON = "RankFailed"
_LINES, _BYTES = 24, 2048
"""The maximum length of the last lines: enough for most tracebacks, and it must fit into a condition."""
_MOST_READ = 100
"""How many Pods of a large gang to examine for one whose error explains the others'."""
_PATIENCE = 2.0
"""Seconds."""
_NOT_SIGNALS = frozenset({255})
_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class _FailedPod:
    pod: Pod
    job: Job
    attempt: int
    key: tuple[str, int, str]
    """Times are in whole seconds; among equal ones, the Pod written first counts."""
    was_stopped: bool

    @property
    def message(self) -> str:
        return read_terminated(_choose_container(self.pod)).get("message") or read_text(self.pod.status, "message")


def find_failure(view: View, trainjob: TrainJob, jobset: JobSet) -> Fields | None:
    """The first failure of the newest attempt: the stored one, otherwise from the Pods. A rank that only lost its
    connection to another one counts if there is no other."""
    stored = trainjob.failure
    if jobset.is_suspended:
        # Pods of a suspended job end because they were stopped.
        return stored
    found = [_read_pod(pod, job) for job in _list_failed_jobs(view, jobset) for pod in _list_failed_pods(view, job)]
    found.sort(key=lambda one: one.key)
    failure = _choose(stored, [one for one in found if not one.was_stopped])
    if failure is not None and _is_consequence(failure):
        return _find_explaining(failure, [one for one in found if one.was_stopped]) or failure
    return failure


def _choose(stored: Fields | None, failed: Sequence[_FailedPod]) -> Fields | None:
    if not failed:
        return stored
    newest = max(one.attempt for one in failed)
    if stored is not None and stored.get("attempt", 0) > newest:
        return stored
    current = [one for one in failed if one.attempt == newest]
    if stored is None or stored.get("attempt", 0) < newest:
        return _describe(next((one for one in current[:_MOST_READ] if not _lost_peer(one.message)), current[0]))
    earlier = [one for one in current if one.key[0] < stored.get("finishedAt", "")]
    others = current if _is_consequence(stored) else earlier
    first = next((one for one in others[:_MOST_READ] if not _lost_peer(one.message)), None)
    return stored if first is None else _describe(first)


def _find_explaining(failure: Fields, stopped: Sequence[_FailedPod]) -> Fields | None:
    """A Pod that was stopped because of the failure although its own program had failed before: launchers take a moment
    to notice. Its exit code is then that of being stopped, so the first one's is used."""
    for one in stopped[:_MOST_READ]:
        cause = read_cause(one.message.splitlines())
        if one.attempt == failure.get("attempt") and cause.is_certain and not cause.is_consequence:
            kept = {name: failure[name] for name in ("exitCode", "finishedAt") if name in failure}
            return {name: value for name, value in {**_describe(one), **kept}.items() if name != "signal"}
    return None


def _is_consequence(failure: Fields) -> bool:
    return _lost_peer(read_text(failure, "message"))


def _lost_peer(message: str) -> bool:
    return read_cause(message.splitlines()).is_consequence


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
    return (pod for pod in map(Pod, view.owned(PODS, job.namespace, job.uid)) if pod.phase == "Failed")


def _read_pod(pod: Pod, job: Job) -> _FailedPod:
    end = _find_end(pod)
    attempt = read_first(pod.raw) + _count_restarts(_read_marks(pod))
    version = pod.resource_version
    key = (end, int(version) if version.isdecimal() else 0, pod.name)
    return _FailedPod(pod, job, attempt, key, _was_stopped(pod, end))


def _was_stopped(pod: Pod, end: str) -> bool:
    """Whether the Pod ended because it was deleted. If both happened within the same second, the signal decides."""
    deleted = pod.meta.get("deletionTimestamp")
    if not deleted:
        return False
    asked = format_time(parse_time(deleted) - timedelta(seconds=pod.meta.get("deletionGracePeriodSeconds") or 0))
    return end > asked or (end == asked and read_terminated(_choose_container(pod)).get("exitCode") in _STOPPED)


def _read_marks(pod: Pod) -> Mapping[str, str]:
    return {**pod.annotations, **pod.labels}


def _describe(failed: _FailedPod) -> Fields:
    pod, own = failed.pod, _read_marks(failed.pod)
    container = _choose_container(pod)
    ended = read_terminated(container)
    code = ended.get("exitCode")
    failure: Object = {
        "attempt": failed.attempt,
        "job": failed.job.name,
        "replicatedJob": own.get(labels.REPLICATED_JOB_NAME),
        "jobIndex": _read_number(own.get(labels.JOB_INDEX)),
        "rank": _read_number(own.get(labels.COMPLETION_INDEX)),
        "pod": pod.name,
        "container": container.get("name"),
        "exitCode": code,
        "signal": ended.get("signal") or _find_signal(code),
        "reason": ended.get("reason") or pod.status.get("reason"),
        "message": excerpt(failed.message.splitlines(), _LINES, _BYTES),
        "finishedAt": failed.key[0],
    }
    return {name: value for name, value in failure.items() if value not in (None, "")}


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
    return code - 128 if code - 128 in signal.Signals._value2member_map_ else None


def _read_number(text: str | None) -> int | None:
    return find_count(text)


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
        name = name_signal(failure["signal"])
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
