"""A terminal that tests can look at: a program on a pseudo-terminal, and the screen that a person would see.

Used by e2e tests and by `tools/picture.py`. The screen is pyte's: what is drawn is what a VT100 would show.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyte

_LIMIT = 30.0


class Terminal:
    """One program on one terminal. Leaving ends it."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        columns: int = 80,
        rows: int = 24,
        directory: Path | None = None,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=2000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._code: int | None = None
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            if directory is not None:
                os.chdir(directory)
            os.execvpe(command[0], list(command), dict(environ))
        self._set_size(columns, rows)
        self.before: list[Any] = termios.tcgetattr(self._master)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._master)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def signal(self, number: int) -> None:
        os.kill(self._pid, number)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """All printed text, including what has scrolled off, but not what was overwritten."""
        kept = [
            "".join(row[column].data for column in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return "\n".join([*kept, *self.lines])

    def is_cursor_hidden(self) -> bool:
        return bool(self.screen.cursor.hidden)

    @property
    def mode(self) -> list[Any]:
        """What the terminal does with keys, as the program left it."""
        return list(termios.tcgetattr(self._master))

    def wait_for(self, *wanted: str, limit: float = _LIMIT) -> str:
        """Until the screen shows all of these; the screen."""
        self.wait_until(lambda: all(word in self.text for word in wanted), f"{wanted}", limit)
        return "\n".join(self.lines)

    def wait_until(self, holds: Callable[[], bool], what: str, limit: float = _LIMIT) -> None:
        deadline = time.monotonic() + limit
        while not holds():
            if not self._read(deadline - time.monotonic()) and not holds():
                raise AssertionError(f"{what} did not appear; the screen:\n{self.text}")

    def end(self, limit: float = _LIMIT) -> int:
        """Its exit code, once it has ended by itself."""
        deadline = time.monotonic() + limit
        while self._read(deadline - time.monotonic()):
            pass
        while self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"it does not end; the screen:\n{self.text}")
            else:
                time.sleep(0.01)
        return self._code

    def hang_up(self) -> int:
        """Closes the terminal; returns the exit code of the program."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)
        _, status = os.waitpid(self._pid, 0)
        self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _read(self, seconds: float) -> bool:
        """Feeds what has come to the screen; False when nothing more comes, or not in time."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        if not ready:
            return False
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # Linux says so when the last writer has closed its end
            return False
        self.raw += piece
        self._stream.feed(piece)
        return bool(piece)
