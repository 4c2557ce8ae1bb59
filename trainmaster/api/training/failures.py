"""The failure of a TrainJob in one short line, from its `status.failure`. Pure.

The Failed condition ends with the last output of the rank, which is too long for a table. The short form is
"rank 1: exit code 1: ValueError: broken data in shard 3".
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

LAST_WORDS = "; its last words:"
"""Separates the sentence of a message from the last output of a rank."""
FIRST_FAILURE = "; first failure: "
"""Precedes the failed rank in a Failed message."""
_LONGEST = 160
_TRACEBACK = "Traceback (most recent call last):"
_PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""The prefix of torch for each line of an uncaught exception."""
_RULE = re.compile(r"^[=\-_*#~\s]*$")
_GLOG = re.compile(r"^[EWI]\d{4} ")
"""The prefix of torchrun's own log lines."""
_WRAPPERS = ("ChildFailedError", "SignalException")
"""Exceptions that torchrun raises when a worker failed or it was stopped; never the cause."""


def summarize_failure(failure: Mapping[str, Any]) -> str:
    """rank 1: exit code 1: ValueError: broken data in shard 3"""
    step = failure.get("replicatedJob") or "node"
    if "rank" not in failure:
        who = f"Pod {failure.get('pod', '?')}"
    else:
        who = f"rank {failure['rank']}" if step == "node" else f"{step} {failure['rank']}"
    said = find_error(str(failure.get("message") or "").splitlines())
    said = "".join(char if char.isprintable() else " " for char in said)
    said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
    return ": ".join(part for part in (who, _describe_end(failure), said) if part)


def _describe_end(failure: Mapping[str, Any]) -> str:
    reason = str(failure.get("reason") or "")
    more = "" if reason in ("", "Error") else f" ({reason})"
    if failure.get("signal"):
        number = int(failure["signal"])
        known = number in signal.Signals._value2member_map_
        return f"{signal.Signals(number).name if known else f'signal {number}'}{more}"
    return f"exit code {failure['exitCode']}{more}" if failure.get("exitCode") is not None else reason


def read_traceback(lines: Sequence[str]) -> list[str]:
    """The traceback of a Python program, without torch's prefixes; [] if there is none.

    If there are several, it is the last one, because earlier ones were caught; under torchrun it is the first, because
    the failure of one rank makes the others fail. That of torchrun itself is used only if there is no other."""
    found: list[tuple[str, list[str]]] = []
    current: dict[str, list[str]] = {}
    for line in lines:
        match = _PREFIX.match(line)
        prefix = match[0] if match else ""
        text = line[len(prefix) :]
        if text.startswith(_TRACEBACK):
            current[prefix] = [text]
            found.append((prefix, current[prefix]))
        elif _GLOG.match(text):
            current.pop(prefix, None)
        elif prefix in current and text.strip():
            current[prefix].append(text)
    own = [entry for entry in found if not any(word in _get_error(entry[1]) for word in _WRAPPERS)]
    of_ranks = [trace for prefix, trace in own if prefix]
    return of_ranks[0] if of_ranks else (own or found or [("", [])])[-1][1]


def _get_error(trace: Sequence[str]) -> str:
    return next((text for text in trace[1:] if not text[0].isspace()), "")


def find_error(lines: Sequence[str]) -> str:
    """The error of a program: the last line of its traceback, else its last line."""
    said = [text for line in lines if not _RULE.match(text := _PREFIX.sub("", line).strip())]
    return _get_error(read_traceback(lines)).rstrip() or (said or [""])[-1]
