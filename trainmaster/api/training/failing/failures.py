"""The failure of a TrainJob in one short line, from its `status.failure`. Pure.

The Failed condition ends with the last output of the rank, which is too long for a table. The short form is
"rank 1: ValueError: broken data in shard 3, at train.py:12 in step".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.shim.output.cause import FailureCause, read_cause
from trainmaster.shim.output.launcher import name_signal

LAST_WORDS = "; its last words:"
"""Separates the sentence of a message from the last output of a rank."""
FIRST_FAILURE = "; first failure: "
"""Precedes the failed rank in a Failed message."""
_LONGEST = 160


def summarize_failure(failure: Mapping[str, Any]) -> str:
    """rank 1: ValueError: broken data in shard 3, at train.py:12 in step"""
    step = failure.get("replicatedJob") or "node"
    if "pod" not in failure and "rank" not in failure:
        # What a Job says itself, because none of its Pods is left.
        return ": ".join(str(failure[name]) for name in ("job", "reason", "message") if failure.get(name))
    if "rank" not in failure:
        who = f"Pod {failure.get('pod', '?')}"
    else:
        who = f"rank {failure['rank']}" if step == "node" else f"{step} {failure['rank']}"
    cause, end = read_failure_cause(failure), _describe_end(failure)
    if end == "exit code 1" and cause.is_certain:
        end = ""  # that of every exception
    return ": ".join(part for part in (who, end, describe_cause(cause)) if part)


def read_failure_cause(failure: Mapping[str, Any]) -> FailureCause:
    """Why the rank failed, from the part of its output that is kept."""
    return read_cause(str(failure.get("message") or "").splitlines())


def describe_cause(cause: FailureCause) -> str:
    """ValueError: broken data in shard 3, at train.py:12 in step; "" if nothing was printed."""
    error, place = _make_printable(cause.error), _make_printable(cause.place)
    error = error if len(error) <= _LONGEST else f"{error[: _LONGEST - 3]}..."
    return f"{error}, at {place}" if place else error


def _make_printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _describe_end(failure: Mapping[str, Any]) -> str:
    reason = str(failure.get("reason") or "")
    more = "" if reason in ("", "Error") else f" ({reason})"
    if failure.get("signal"):
        return f"{name_signal(int(failure['signal']))}{more}"
    return f"exit code {failure['exitCode']}{more}" if failure.get("exitCode") is not None else reason
