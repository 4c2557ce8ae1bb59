"""A panel at the bottom of a terminal; printed lines scroll above it. Used by `live`.

The panel is erased and redrawn below new lines in one write. After a resize it is unknown how the terminal has wrapped
the old lines, so the screen is cleared and the last lines are printed again. On exit, the cursor, echo and line mode of
the terminal are always restored.
"""

from __future__ import annotations

import os
import termios
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TextIO

from trainmaster.cli.streams import is_gone
from trainmaster.cli.terminal import measure, paint
from trainmaster.cli.view.draw import Line
from trainmaster.cli.view.lines import strip_controls

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that support it show everything in between at once; others ignore it."""
_ERASE_BELOW, _HOME = "\x1b[J", "\x1b[H"
_KEPT = 300
_LOCAL = 3
"""Index of the local flags in the result of tcgetattr."""


class Panel:
    def __init__(self, out: TextIO, keyboard: TextIO | None, *, colours: bool) -> None:
        self._out = out
        self._keyboard = keyboard
        self._colours = colours
        self._rows = 0
        """Rows of the panel on the screen; the cursor is at the end of the last one."""
        self._tail: deque[str] = deque(maxlen=_KEPT)
        self._mode: list[Any] | None = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def take(self) -> None:
        """Hides the cursor and typed characters. Ctrl-C stays a signal."""
        if self._keyboard is not None:
            descriptor = self._keyboard.fileno()
            self._mode = termios.tcgetattr(descriptor)
            mode = termios.tcgetattr(descriptor)
            mode[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
        self._write(_HIDE)

    def give_back(self) -> None:
        """Restores the terminal; the panel stays on the screen."""
        if self._mode is not None and self._keyboard is not None:
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(self._keyboard.fileno(), termios.TCSADRAIN, self._mode)
            self._mode = None
        ending = "\r\n" if self._rows else ""
        self._rows = 0
        self._write(ending + _SHOW)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            size = os.get_terminal_size(self._out.fileno())
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def show(self, printed: Iterable[str], panel: Sequence[Line]) -> None:
        """Prints new lines above the redrawn panel."""
        new = list(printed)
        self._tail.extend(new)
        self._write(_BEGIN + self._erase() + "".join(f"{line}\r\n" for line in new) + self._build(panel) + _END)

    def print(self, lines: Iterable[str]) -> None:
        """Prints lines without a panel."""
        self._write("".join(f"{line}\r\n" for line in lines))

    def redraw(self, panel: Sequence[Line]) -> None:
        """Redraws everything after a resize."""
        columns, rows = self.size
        room, kept = rows - len(panel), list[str]()
        for line in reversed(self._tail):
            room -= max(1, -(-measure(strip_controls(line)) // columns))
            if room < 0:
                break
            kept.append(line)
        self._rows = 0
        above = "".join(f"{line}\r\n" for line in reversed(kept))
        self._write(_BEGIN + _HOME + _ERASE_BELOW + above + self._build(panel) + _END)

    def erase(self) -> None:
        """Removes the panel; the next output takes its place."""
        self._write(self._erase())

    def _erase(self) -> str:
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        text = f"\r{up}{_ERASE_BELOW}" if self._rows else ""
        self._rows = 0
        return text

    def _build(self, panel: Sequence[Line]) -> str:
        self._rows = len(panel)
        return "\r\n".join(
            "".join(paint(span.text, span.style) if self._colours and span.style else span.text for span in line)
            for line in panel
        )

    def _write(self, text: str) -> None:
        if not text:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as error:
            if not is_gone(error):  # the window was closed; the SIGHUP handler does the rest
                raise
