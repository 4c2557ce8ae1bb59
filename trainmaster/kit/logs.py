"""Structured log lines: facts are fields, and a context adds fields to every line logged inside it.

    log = logging.getLogger(__name__)
    with logs.context(controller="jobset", namespace="a", name="b"):
        log.info("job restarted", extra={"action": "jobset.restarted", "attempt": 2})

The message is constant and lower case. Output is either text for people or one JSON object per line for machines. The
values of fields whose names suggest a secret are never written.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

_context: ContextVar[dict[str, object]] = ContextVar("trainmaster_log_context", default={})  # noqa: B039 - never mutated

# The attributes of every LogRecord; any other attribute is a field from the caller.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "context", "taskName"}
_SECRET_WORDS = ("token", "password", "passwd", "secret", "authorization", "private_key", "credential")


@contextmanager
def context(**fields: object) -> Iterator[None]:
    """Adds the fields to every line that is logged inside the block, including by tasks started there."""
    mark = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(mark)


def enter(**fields: object) -> None:
    """Sets the context of the current task until it is set again. For worker tasks."""
    _context.set(fields)


def current_context() -> dict[str, object]:
    return dict(_context.get())


def setup(*, level: str = "info", form: str = "text", stream: TextIO | None = None) -> logging.Handler:
    """Replaces the root handlers with one. Called by `app` only; other parts just log."""
    formatter: logging.Formatter = JsonFormatter() if form == "json" else TextFormatter()
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(_attach_context)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    return handler


def _attach_context(record: logging.LogRecord) -> bool:
    record.context = _context.get()
    return True


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The context and fields of a record, with secrets blanked out."""
    fields = dict(getattr(record, "context", {}))
    fields.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
    return {key: "***" if _is_secret(key) else value for key, value in fields.items()}


def _is_secret(key: str) -> bool:
    lowered = key.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time_of(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}"
        for key, value in fields_of(record).items():
            line += f" {key}={_quote(value)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in fields_of(record).items():
            entry.setdefault(key, value)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _quote(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return json.dumps(text, ensure_ascii=False)
