"""Standard streams whose other end may be gone: a closed window, a hung-up terminal, `| head`.

A command keeps its own exit code whatever becomes of its streams. What it says goes nowhere once nobody listens
(`Context.say`, `Context.note`); what only streams, `logs` for example, ends then (`Context.write`). Python would end
with 120 when it cannot flush a stream at its exit, so `finish` flushes before and throws away what nobody can take.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.ESHUTDOWN, errno.ECONNRESET, errno.EBADF)
"""What writing to a stream answers when its reader has left; EIO is a terminal that was hung up."""


def is_gone(error: OSError) -> bool:
    """Whether this error of a write to a stream says that nobody reads it any more."""
    return error.errno in _GONE


def discard(stream: TextIO) -> None:
    """From now on, what is written to the stream goes nowhere; so does what its buffer still holds."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # closed, or not a file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def open_missing() -> None:
    """Opens /dev/null for each standard stream that was closed before we began (`>&-`).

    Otherwise the next file that is opened, a database for example, would get its number.
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
    """Flushes the standard streams; the exit code: that of the command unless its output could not be stored."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except ValueError:  # closed
            continue
        except OSError as error:
            discard(stream)
            if not is_gone(error):
                # A full disk, for example: whoever reads the file later must be able to tell that it is cut.
                code = code or 1
                if stream is sys.stdout:
                    print(f"trainmaster: cannot write the output: {error.strerror}", file=sys.stderr)
    return code
