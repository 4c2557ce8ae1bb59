"""A job in a pipe or in CI: its lines as it printed them, and ours beside them without colours and cursors.

What programs print goes to standard output, byte for byte, with the rank before it where there are several; what
Trainmaster says goes to standard error. With `json` everything goes to standard output, an object a line.
"""

from __future__ import annotations

import json

from trainmaster.cli.context import CommandContext
from trainmaster.cli.terminal import clean
from trainmaster.cli.view.contract import Shown
from trainmaster.cli.view.model import COMPLETE, FAILED, JobNews


class Plain:
    """Implements `contract.View`."""

    can_ask = False

    def __init__(self, context: CommandContext, form: str = "text") -> None:
        self._context = context
        self._json = form == "json"

    def open(self) -> None:
        """Nothing to prepare."""

    def print_line(self, line: Shown) -> None:
        if self._json:
            self._context.require_reader()
            self._emit("log", attempt=line.attempt, job=line.job, rank=line.rank, text=line.text)
        else:
            self._context.write(f"{line.prefix}{line.text}\n", flush=True)

    def print_news(self, news: JobNews) -> None:
        if self._json:
            self._emit(news.kind, text=news.text)
        elif news.text not in (COMPLETE, FAILED):  # the ending says it better
            self._context.note(f"trainmaster: {clean(news.text)}")

    def refresh(self) -> None:
        """Lines are printed as they come."""

    def close(self) -> None:
        """Nothing to give back."""

    def print_result(self, state: str, code: int, text: str) -> None:
        self._emit("result", state=state, code=code, text=text)

    def _emit(self, kind: str, **facts: str | int) -> None:
        self._context.say(json.dumps({"type": kind, **facts}, ensure_ascii=False))
