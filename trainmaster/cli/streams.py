"""Standard streams whose other end may be closed: a closed terminal window, or a pipe such as `| head`.

A command keeps its exit code in that case. `CommandContext.say` and `note` drop their output; a command that only
streams, such as `logs`, ends (`CommandContext.write`). Python would exit with 120 if it could not flush a stream at its
exit, so `finish` flushes earlier and discards the output.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.ESHUTDOWN, errno.ECONNRESET, errno.EBADF)
"""Errors of a write to a stream without a reader; EIO means that the terminal was closed."""


def is_gone(error: OSError) -> bool:
    """Whether this error of a write means that the stream has no reader any more."""
    return error.errno in _GONE


def discard(stream: TextIO) -> None:
    """Redirects the stream, including its buffered data, to /dev/null."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # closed, or not a file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def open_missing() -> None:
    """Opens /dev/null for each standard stream that is closed at the start (`>&-`).

    Otherwise the next opened file, such as a database, would get its file descriptor.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def finish(code: int) -> int:
    """Flushes the standard streams. Returns the exit code: `code`, unless the output could not be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except ValueError:  # closed
            continue
        except OSError as error:
            discard(stream)
            if not is_gone(error):
                # For example, the disk is full: the exit code has to show that the output is incomplete.
                code = code or 1
                if stream is sys.stdout:
                    print(f"trainmaster: cannot write the output: {error.strerror}", file=sys.stderr)
    return code
