"""Entries of a log stream as lines of JSON, for a stream that crosses a network. Pure.

A line of output that is not UTF-8 is sent as base64, so that it arrives as it was printed.
"""

from __future__ import annotations

import base64

import orjson

from trainmaster.jobs.logs.contract import Entry, Line, LogMark


def encode_entry(entry: Entry) -> bytes:
    """One line, with its line break."""
    if isinstance(entry, LogMark):
        return orjson.dumps({"mark": entry.kind, "attempt": entry.attempt, "text": entry.text}) + b"\n"
    place = {"attempt": entry.attempt, "job": entry.job, "rank": entry.rank, "container": entry.container}
    found = {**place, "restart": entry.restart, "pod": entry.pod, "time": entry.time, **_encode_text(entry.raw)}
    return orjson.dumps(found) + b"\n"


def decode_entry(line: bytes) -> Entry:
    """Raises ValueError or KeyError if it is none."""
    found = orjson.loads(line)
    if "mark" in found:
        return LogMark(found["mark"], found["attempt"], found["text"])
    raw = base64.b64decode(found["base64"]) if "base64" in found else found["text"].encode()
    head = (found["attempt"], found["job"], found["rank"], found["container"])
    return Line(*head, found["time"], raw, found["restart"], found["pod"])


def _encode_text(raw: bytes) -> dict[str, str]:
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}
