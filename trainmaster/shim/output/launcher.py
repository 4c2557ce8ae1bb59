"""Separates the output of programs from what torchrun prints itself when a worker fails or it is stopped.

That is some forty lines per node: log lines, a traceback of torchrun's own, and a table. Only recognized text is taken
out; a traceback of torchrun that ends in another error than these (a rendezvous that failed) stays.
"""

from __future__ import annotations

import re
import signal
from typing import Generic, TypeVar

HEADER = "Traceback (most recent call last):"
_LOG = (
    r"(?:[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ (?:\S*/)?torch/distributed/(?:run\.py|launcher/|elastic/)"
    r"|(?:ERROR|WARNING|INFO):torch\.distributed\.(?:run|launcher|elastic)\b"
    r"|\[\d{4}-\d\d-\d\d [\d:,]+\] torch\.distributed\.(?:run|launcher|elastic)\b)"
)
"""A log line of torchrun; its format has changed between versions of torch."""
_WORKER = r"failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,9})"
_FRAME = r'  File "(?:[^"]*/torchrun|[^"]*/torch/distributed/(?:run|launch)\.py)", line '
_TABLE_RANK, _TABLE_CODE = r"  rank +: \d+ \(local_rank: (\d{1,9})\)", r"  exitcode +: (-?\d{1,9}) "
_WRAPPERS = ("multiprocessing.errors.ChildFailedError", "multiprocessing.api.SignalException")
EXCEPTION = r"(?:(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z]\w*)(?::(?: |$)|\s*$)"
"""The beginning of the last line of a traceback: the class, and its message if there is one."""
_LONGEST_TRACE, _LONGEST_TABLE = 120, 2000
"""Lines after which something that looked like torchrun's own is taken for the program's."""


_Item = TypeVar("_Item")


class LauncherFilter(Generic[_Item]):
    """For the output of one container, line by line. `feed` takes a line as text, and as whatever the caller wants to
    get back. It returns the lines that are certain not to be torchrun's, which may include earlier ones that were held
    back; `flush` returns those that are still held back at the end."""

    def __init__(self) -> None:
        self.report = ""
        """What torchrun has said first of its worker, in one line; "" if nothing."""
        self._news = ""
        self._held: list[_Item] = []
        self._is_own = False
        """Whether the lines held back are a traceback with a frame of torchrun."""
        self._table = 0
        """Lines of the table so far; 0 outside of it."""
        self._rules = self._rank = 0

    @property
    def is_idle(self) -> bool:
        """Whether it is outside of a traceback and of torchrun's table."""
        return not self._held and not self._table

    def feed(self, text: str, item: _Item) -> list[_Item]:
        if self._table:
            return self._feed_table(text, item)
        if self._held:
            return self._feed_trace(text, item)
        if text.startswith(HEADER) or (text.startswith("  File ") and re.match(_FRAME, text)):
            # Where only the end of an output is known, a traceback may begin in the middle.
            self._held, self._is_own = [item], text.startswith("  File ")
            return []
        return self._feed_other(text, item)

    def take_news(self) -> str:
        """What torchrun has said of a worker since the last call."""
        news, self._news = self._news, ""
        return news

    def flush(self) -> list[_Item]:
        held, self._held, self._is_own = self._held, [], False
        return held

    def _feed_other(self, text: str, item: _Item) -> list[_Item]:
        if "torch" not in text or not re.match(_LOG, text):
            return [item]
        if worker := re.search(_WORKER, text):
            self._tell(_describe_worker(int(worker[1]), int(worker[2])))
        return []

    def _tell(self, news: str) -> None:
        self._news = news
        self.report = self.report or news

    def _feed_trace(self, text: str, item: _Item) -> list[_Item]:
        if text.startswith(HEADER) or len(self._held) >= _LONGEST_TRACE:
            return [*self.flush(), *self.feed(text, item)]
        self._is_own = self._is_own or re.match(_FRAME, text) is not None
        if text[:1] in ("", " "):
            self._held.append(item)
            # Other programs' tracebacks are shown as they come, from their first own frame on.
            return [] if self._is_own or len(self._held) < 8 else self.flush()
        if self._is_own and not re.match(EXCEPTION, text):
            return self._feed_other(text, item)  # of a worker that is still running
        if not self._is_own or not any(name in text for name in _WRAPPERS):
            return [*self.flush(), *self._feed_other(text, item)]
        self.flush()
        if "SignalException" in text:
            self._tell(_describe_signal(text))
        else:
            self._table, self._rules = 1, 0
        return []

    def _feed_table(self, text: str, item: _Item) -> list[_Item]:
        """The table is between two rules of equals signs."""
        is_rule = text.startswith("=====")
        if (not self._rules and not is_rule) or self._table > _LONGEST_TABLE:
            self._table = 0
            return self.feed(text, item)
        self._rules += is_rule
        if worker := re.match(_TABLE_RANK, text):
            self._rank = int(worker[1])
        elif not self.report and (code := re.match(_TABLE_CODE, text)):
            self._tell(_describe_worker(int(code[1]), self._rank))
        self._table = 0 if self._rules == 2 else self._table + 1
        return []


def _describe_worker(code: int, rank: int) -> str:
    if code >= 0:
        return f"local rank {rank} ended with exit code {code}"
    return f"local rank {rank} was ended by {name_signal(-code)}"


def _describe_signal(text: str) -> str:
    found = re.search(r"signal: (\d{1,3})$", text.rstrip())
    return f"was stopped with {name_signal(int(found[1]))}" if found else "was stopped"


def name_signal(number: int) -> str:
    """SIGKILL; signal 99 for an unknown one."""
    return signal.Signals(number).name if number in signal.Signals._value2member_map_ else f"signal {number}"
