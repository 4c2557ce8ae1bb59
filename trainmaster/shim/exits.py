"""Builds the record of a container's exit: exit code, signal and termination message.

The message is the end of the termination message file or, if that is empty, the program failed and the Pod asks for it,
the end of the log, with the kubelet's limits. If the end does not show why the program failed, because a launcher or
other ranks print a lot after it or a traceback is long, it is the part that does (`output.cause`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import zip_longest

from trainmaster.shim.log_sink import HEAD_BYTES, MAX_LINE, SEAMS, STREAM_FIELD
from trainmaster.shim.output.cause import shorten_output
from trainmaster.shim.protocol import ContainerSpec, Exited, Paths

MAX_MESSAGE = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
_WINDOW = 4 * (MAX_LINE + HEAD_BYTES)
"""How much of the end of the log is read: enough even if its entries have the maximum length, and for what other ranks
and launchers print after the error."""
_TAG = HEAD_BYTES - 2
START_FAILED = 128
"""Exit code of a container whose program could not be started."""


def build_exited(status: int, at: float, message: str, *, oom_killed: bool) -> Exited:
    """Converts a wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return Exited(code, at, oom_killed=oom_killed, message=message)
    return Exited(128 - code, at, signal=-code, oom_killed=oom_killed, message=message)


def read_message(paths: Paths, spec: ContainerSpec, *, failed: bool) -> str:
    message = _decode(_read_end(paths.message(spec.name, spec.attempt), MAX_MESSAGE))
    if message or not failed or not spec.message_from_logs:
        return message
    return read_log_end(paths.log(spec.name, spec.attempt))


def read_log_end(path: str) -> str:
    """The part of a CRI log that shows why the program failed, without the headers of its entries."""
    text = _read_text(path)
    last = _decode(b"".join(text.splitlines(keepends=True)[-MAX_LOG_LINES:])[-MAX_LOG_BYTES:])
    return shorten_output(_decode(text), last, MAX_LOG_LINES, MAX_LOG_BYTES)


def read_last_lines(path: str, most: int, most_bytes: int) -> list[str]:
    """The end of a CRI log as it is, both streams; the first line may lack its beginning."""
    return _decode(_read_text(path)[-most_bytes:]).splitlines()[-most:]


def _read_text(path: str) -> bytes:
    content = _read_end(path, _WINDOW)
    if len(content) < _WINDOW:  # perhaps rotated a moment ago
        content = _read_end(f"{path}.1", _WINDOW - len(content)) + content
    entries = content.split(b"\n")[:-1]
    if len(content) == _WINDOW:
        entries = entries[1:]  # the first one is incomplete
    entries = [entry for entry in entries if entry[STREAM_FIELD] not in SEAMS]
    return b"".join(_list_texts(entries))


def _list_texts(entries: list[bytes]) -> Iterator[bytes]:
    """Parts of a line are joined if nothing of the other stream stands between them."""
    for entry, following in zip_longest(entries, entries[1:], fillvalue=b""):
        is_part = entry[_TAG] == ord("P") and following[STREAM_FIELD] in (entry[STREAM_FIELD], b"")
        yield entry[HEAD_BYTES:] + (b"" if is_part else b"\n")


def _decode(content: bytes) -> str:
    """A cut may split a character; NUL is not allowed in the API."""
    return content.decode(errors="replace").replace("\0", "\ufffd")


def _read_end(path: str, size: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        length = os.fstat(handle).st_size
        return os.pread(handle, size, max(0, length - size))
    except OSError:
        return b""
    finally:
        os.close(handle)
