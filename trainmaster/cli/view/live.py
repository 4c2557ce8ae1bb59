"""The live view on a terminal: log lines scroll above a panel with the job's state.

The panel appears after a moment, so that a job that is over by then shows as a few plain lines. The panel is drawn a
few times per second; no lines are dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.cli.terminal import DIM, WAIT, clean, paint
from trainmaster.cli.view.contract import Shown
from trainmaster.cli.view.draw import Line, draw
from trainmaster.cli.view.lines import tidy
from trainmaster.cli.view.model import JobNews, Model
from trainmaster.cli.view.panel import Panel
from trainmaster.kit.clock import Clock

_HELP = "Ctrl-C: detach or stop"
QUESTION = "Detach (d), stop the job (s), or go on looking (c)?  Ctrl-C again detaches."
STOPPING = "Stopping: ranks have time to save.  Ctrl-C does not wait for them."
_SECONDS = 0.12
"""Minimum time between two draws."""
_AT_FIRST = 0.25
"""A job that takes no longer gets no panel."""
_COLOURS = (36, 35, 34, 33, 32, 96, 95, 94)
_SHARE = 0.5
"""Maximum fraction of the terminal's height for the panel."""
_LEAST = 6


class Live:
    """Implements `contract.View`."""

    def __init__(self, model: Model, panel: Panel, clock: Clock, *, colours: bool, can_ask: bool) -> None:
        self._model = model
        self._panel = panel
        self._clock = clock
        self._colours = colours
        self.can_ask = can_ask
        self._waiting: list[str] = []
        self._last: dict[int, str] = {}
        self._began = 0.0
        self._drawn = 0.0
        self._is_open = False
        self._resized = False
        self.footer = _HELP

    def open(self) -> None:
        self._began = self._clock.monotonic()

    def print_line(self, line: Shown) -> None:
        if line.job == "node":
            self._last[line.rank] = line.text
        prefix = line.prefix
        if prefix and self._colours:
            prefix = f"\x1b[{_COLOURS[line.rank % len(_COLOURS)]}m{prefix}\x1b[0m"
        self._waiting.append(prefix + tidy(line.text, colours=self._colours))

    def print_news(self, news: JobNews) -> None:
        if news.kind in ("restart", "rank"):
            self._waiting.append(self._paint(f"── {clean(news.text)}", WAIT))
        elif news.kind == "note":
            self._waiting.append(self._paint(clean(news.text), DIM))

    def ask(self, footer: str = "") -> None:
        """Replaces the last line of the panel; "" restores it."""
        self.footer = footer or _HELP
        self._drawn = 0.0
        self.refresh()

    def resize(self) -> None:
        self._resized = True
        self.refresh()

    def refresh(self) -> None:
        now = self._clock.monotonic()
        if now - self._began < _AT_FIRST or (now - self._drawn < _SECONDS and not self._resized):
            return
        if not self._is_open:
            self._is_open = True
            self._panel.take()
        self._drawn = now
        panel = self._draw()
        if self._resized:
            self._resized = False
            self._panel.redraw(panel)
        self._panel.show(self._take(), panel)

    def pause(self) -> Callable[[], None]:
        """Restores the terminal for Ctrl-Z; the returned function resumes the view."""
        if not self._is_open:
            return lambda: None
        self._panel.erase()
        self._panel.give_back()

        def go_on() -> None:
            self._panel.take()
            self._drawn = 0.0
            self.refresh()

        return go_on

    def close(self) -> None:
        """Prints the last lines and removes the panel; the caller prints the ending in its place."""
        lines = self._take()
        if self._is_open:
            self._is_open = False
            self._panel.show(lines, self._draw_metrics())
            self._panel.give_back()
        else:
            self._panel.print(lines)

    def _draw(self) -> list[Line]:
        columns, rows = self._panel.size
        height = max(min(_LEAST, rows - 1), int(rows * _SHARE))
        return draw(self._model.screen, self._clock.now(), columns, height, self._last, self.footer)

    def _draw_metrics(self) -> list[Line]:
        """The part of the panel that stays on the screen: the final state of all ranks."""
        columns, rows = self._panel.size
        return draw(self._model.screen, self._clock.now(), columns, max(_LEAST, rows // 2), self._last)

    def _take(self) -> list[str]:
        lines, self._waiting = self._waiting, []
        return lines

    def _paint(self, text: str, style: str) -> str:
        return paint(text, style) if self._colours else text
