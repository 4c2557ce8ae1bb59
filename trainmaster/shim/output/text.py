"""Turns the output of a program into plain lines: without colours, redrawn progress bars and JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from trainmaster.shim.output.launcher import HEADER
from trainmaster.shim.output.tracebacks import split_prefix

_ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]?)"
_MESSAGES = ("message", "msg", "event", "text", "log")
_TRACES = ("exc_info", "exception", "traceback", "stack_trace", "stacktrace", "stack", "error", "err")
_MARGINS = ("", "Original", "Exception Group")
"""What may precede the header of a traceback; anything else is a line of its own, such as a progress bar."""


def plain_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        text = line
        if "\x1b" in text:
            text = re.sub(_ESCAPES, "", text)
        if "\r" in text:
            text = next((piece for piece in reversed(text.split("\r")) if piece), "")
        if text.startswith("{") and text.rstrip().endswith("}"):
            for part in _expand(text):
                yield from _split_header(part)
        else:
            yield from _split_header(text)


def _split_header(text: str) -> Iterator[str]:
    before, found, after = text.partition(HEADER)
    if found and split_prefix(before)[1].strip(" |+") not in _MARGINS:
        yield before
        yield found + after
    else:
        yield text


def _expand(text: str) -> list[str]:
    """The message of a JSON log entry, followed by its traceback; the line itself if it is something else."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    said = next((entry[key] for key in _MESSAGES if isinstance(entry.get(key), str)), "")
    trace = next((found for key in _TRACES if (found := _read_trace(entry.get(key)))), "")
    return [*said.splitlines(), *trace.splitlines()] or [text]


def _read_trace(value: object) -> str:
    """A traceback as text, as `{"type": ..., "message": ..., "stack_trace": ...}`, or as structlog writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _read_trace(value[-1]) if value else ""
    if not isinstance(value, dict):
        return ""
    whole = next((value[key] for key in _TRACES if isinstance(value.get(key), str)), "")
    kind, said = value.get("exc_type") or value.get("type"), value.get("exc_value") or value.get("message")
    return whole or (f"{kind}: {said}" if isinstance(kind, str) and isinstance(said, str) else "")
