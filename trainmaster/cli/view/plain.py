"""The view for pipes and CI: plain lines without colours.

Output of programs goes unchanged to standard output, prefixed with the rank if there are several; messages of
Trainmaster go to standard error. With `json` everything goes to standard output, one object per line.
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
        elif news.text not in (COMPLETE, FAILED):  # the ending reports these
            self._context.note(f"trainmaster: {clean(news.text)}")

    def refresh(self) -> None:
        """Nothing to do: lines are printed as they arrive."""

    def close(self) -> None:
        """Nothing to restore."""

    def print_result(self, state: str, code: int, text: str) -> None:
        self._emit("result", state=state, code=code, text=text)

    def _emit(self, kind: str, **facts: str | int) -> None:
        self._context.say(json.dumps({"type": kind, **facts}, ensure_ascii=False))
