"""The failure of a TrainJob in one short line, from its `status.failure`. Pure.

The Failed condition ends with the last words of the rank, which is right for programs and too much for a table: people
read "rank 1: exit code 1: ValueError: broken data in shard 3". Used by whoever shows jobs to people.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

LAST_WORDS = "; its last words:"
"""What a message says before them; the part before is a sentence."""
FIRST_FAILURE = "; first failure: "
"""What a Failed message says before the rank that failed."""
_LONGEST = 160
_TRACEBACK = "Traceback (most recent call last):"
_PREFIX = re.compile(r"^\[[\w-]+\]:? ?")
"""What torch puts before each line of a rank."""
_RULE = re.compile(r"^[=\-_*#~\s]*$")
_WRAPPER = "ChildFailedError"
"""What torchrun raises because a program of its own failed: never the cause."""


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


def find_error(lines: Sequence[str]) -> str:
    """What a program said when it broke: the line that ends its last traceback, else its last line. A launcher's own
    traceback counts only where there is no other."""
    texts = [_PREFIX.sub("", line).rstrip() for line in lines]
    said = [text.strip() for text in texts if text.strip() and not _RULE.match(text)]
    errors, inside = [], False
    for text in texts:
        if text.lstrip().startswith(_TRACEBACK):
            inside = True
        elif inside and text and not text[0].isspace():
            errors.append(text)
            inside = False
    causes = [error for error in errors if _WRAPPER not in error]
    return (causes or errors or said or [""])[-1]
