"""Which rank of a training job failed first, and how. Pure.

Read from the statuses of Pods. Containers that are restarted in place (restartPolicy OnFailure) failed in their
previous run: by the time their Job gives up, they run again and are stopped. The program's last lines are the
termination message of its container; the node puts the part of the log there that shows the error if the program wrote
none. Pods disappear, so the result is kept in `status.failure`: the first failure of the newest attempt that had one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_text
from trainmaster.api.training.failing.failures import LAST_WORDS
from trainmaster.jobs.models.pods import Pod, read_last_terminated, read_terminated
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.shim.output.cause import excerpt, read_cause
from trainmaster.shim.output.launcher import name_signal

_LINES, _BYTES = 24, 2048
"""The maximum length of the last lines: enough for most tracebacks, and it must fit into a condition."""
_MOST_READ = 100
"""How many Pods of a large gang to examine for one whose error explains the others'."""
_BURST = timedelta(seconds=60)
"""Containers that failed because of the same thing did so within this."""
_NOT_SIGNALS = frozenset({255})
_STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


class FailedRun(NamedTuple):
    """How a container failed; both empty if the Pod failed for another reason."""

    container: Fields
    """Its status."""
    ended: Fields
    """`terminated` of its current or its previous run."""
    is_previous: bool


@dataclass(frozen=True, slots=True)
class FailedPod:
    pod: Pod
    attempt: int
    place: Fields
    """Its job, replicated job and rank, as in `status.failure`."""
    run: FailedRun
    key: tuple[str, bool, int, str]
    """Times are in whole seconds; among equal ones, Pods that were not asked to stop count first, then the one written
    first."""
    was_stopped: bool

    @property
    def message(self) -> str:
        return self.run.ended.get("message") or read_text(self.pod.status, "message")


def has_failed_run(pod: Pod) -> bool:
    """Whether it has failed, or one of its containers was restarted after a failure."""
    return pod.phase == "Failed" or bool(_list_failed(pod, read_last_terminated))


def read_failed_pod(pod: Pod, attempt: int, place: Fields) -> FailedPod:
    run, was_stopped = _choose_run(pod)
    end = read_text(run.ended, "finishedAt") or pod.created_at
    version = pod.resource_version
    key = (end, pod.is_deleting, int(version) if version.isdecimal() else 0, pod.name)
    return FailedPod(pod, attempt, place, run, key, was_stopped)


def choose_failure(stored: Fields | None, found: Sequence[FailedPod]) -> Fields | None:
    """The first failure of the newest attempt: the stored one, otherwise from the Pods. A rank that only lost its
    connection to another one counts if there is no other."""
    found = sorted(_drop_overcome(found), key=lambda one: one.key)
    failure = _choose(stored, [one for one in found if not one.was_stopped])
    if failure is not None and _is_consequence(failure):
        return _find_explaining(failure, [one for one in found if one.was_stopped]) or failure
    return failure


def _drop_overcome(found: Sequence[FailedPod]) -> list[FailedPod]:
    """Without restarts in place that came long before the last one: those ranks have gone on since."""
    ends = [parse_time(one.key[0]) for one in found if one.run.is_previous]
    if len(ends) < 2:
        return list(found)
    begin = format_time(max(ends) - _BURST)
    return [one for one in found if not one.run.is_previous or one.key[0] >= begin]


def _choose(stored: Fields | None, failed: Sequence[FailedPod]) -> Fields | None:
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


def _find_explaining(failure: Fields, stopped: Sequence[FailedPod]) -> Fields | None:
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


def _choose_run(pod: Pod) -> tuple[FailedRun, bool]:
    """The run that failed first, and whether it only ended because the Pod was deleted."""
    current = _list_failed(pod, read_terminated)
    unasked = [run for run in current if not _was_stopped(pod, run.ended)]
    previous = _list_failed(pod, read_last_terminated) if not unasked else []
    runs = unasked or [run._replace(is_previous=True) for run in previous] or current
    first = min(runs, key=lambda run: read_text(run.ended, "finishedAt"), default=FailedRun({}, {}, False))
    was_stopped = not unasked and not previous and _was_stopped(pod, first.ended)
    return first, was_stopped


def _list_failed(pod: Pod, read: Callable[[Fields], Fields]) -> list[FailedRun]:
    found = ((entry, read(entry)) for entry in pod.all_container_statuses)
    return [FailedRun(entry, ended, False) for entry, ended in found if ended.get("exitCode")]


def _was_stopped(pod: Pod, ended: Fields) -> bool:
    """Whether the Pod ended because it was deleted. If both happened within the same second, the signal decides."""
    deleted = pod.meta.get("deletionTimestamp")
    if not deleted:
        return False
    end = read_text(ended, "finishedAt") or pod.created_at
    asked = format_time(parse_time(deleted) - timedelta(seconds=pod.meta.get("deletionGracePeriodSeconds") or 0))
    return end > asked or (end == asked and ended.get("exitCode") in _STOPPED)


def _describe(failed: FailedPod) -> Fields:
    pod = failed.pod
    container, ended, _ = failed.run
    code = ended.get("exitCode")
    failure: Object = {
        "attempt": failed.attempt,
        **failed.place,
        "pod": pod.name,
        "container": container.get("name"),
        "exitCode": code,
        "signal": ended.get("signal") or _find_signal(code),
        "reason": ended.get("reason") or pod.status.get("reason"),
        "message": excerpt(failed.message.splitlines(), _LINES, _BYTES),
        "finishedAt": failed.key[0],
    }
    return {name: value for name, value in failure.items() if value not in (None, "")}


def _find_signal(code: int | None) -> int | None:
    """Shells and container runtimes report 128 plus the signal number."""
    if code is None or code <= 128 or code in _NOT_SIGNALS:
        return None
    return code - 128 if code - 128 in signal.Signals._value2member_map_ else None


def describe(failure: Fields) -> str:
    """For messages: which rank, how it failed, and the last lines."""
    if "pod" not in failure:
        who = f"job {failure['job']}"
    else:
        who = f"Pod {failure['pod']}" if "rank" not in failure else f"rank {failure['rank']} of job {failure['job']}"
    if "container" in failure:
        who += f" (Pod {failure['pod']}, container {failure['container']})"
    text = f"first failure: {who} {_describe_end(failure)}"
    if not failure.get("message"):
        return text
    # What a Job says about itself was printed by no program.
    return f"{text}: {failure['message']}" if "pod" not in failure else f"{text}{LAST_WORDS}\n{failure['message']}"


def _describe_end(failure: Fields) -> str:
    reason = failure.get("reason", "")
    if "signal" in failure:
        name = name_signal(failure["signal"])
        code = f" (exit code {failure['exitCode']}{', ' if reason else ''}{reason})"
        return f"was ended by {name}{code}"
    known = "" if reason in ("", "Error") else f" ({reason})"
    return f"ended with exit code {failure['exitCode']}{known}" if "exitCode" in failure else f"failed{known}"
