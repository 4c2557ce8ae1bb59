"""Builds the record of a container's exit: exit code, signal and termination message.

The message is the end of the termination message file or, if that is empty, the program failed and the Pod asks for it,
the end of the log. The limits are the kubelet's. Output of torchrun after a worker failed (its own traceback and a
table) is left out, because it would fill the whole message.
"""

from __future__ import annotations

import os

from trainmaster.shim.log_sink import HEAD_BYTES, MAX_LINE
from trainmaster.shim.protocol import ContainerSpec, Exited, Paths

MAX_MESSAGE = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
_WINDOW = 2 * (MAX_LINE + HEAD_BYTES) + MAX_LOG_BYTES
"""How much of the end of the log is read: enough even if its entries have the maximum length."""
_TAG = HEAD_BYTES - 2
_LAUNCHER_BEGINS, _LAUNCHER_ENDS = b"] failed (exitcode: ", b"multiprocessing.errors.ChildFailedError"
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
    """The last lines of a CRI log, without their headers."""
    content = _read_end(path, _WINDOW)
    entries = content.split(b"\n")[:-1]
    if len(content) == _WINDOW:
        entries = entries[1:]  # the first one is incomplete
    text = b"".join(entry[HEAD_BYTES:] + (b"" if entry[_TAG] == ord("P") else b"\n") for entry in entries)
    lines = _cut_launcher(text.splitlines(keepends=True))[-MAX_LOG_LINES:]
    return _decode(b"".join(lines)[-MAX_LOG_BYTES:])


def _cut_launcher(lines: list[bytes]) -> list[bytes]:
    """Drops everything after the line in which torchrun reports how its worker ended."""
    if any(_LAUNCHER_ENDS in line for line in lines):
        for number in range(len(lines) - 1, -1, -1):
            if _LAUNCHER_BEGINS in lines[number]:
                return lines[: number + 1]
    return lines


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
