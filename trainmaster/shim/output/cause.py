"""Decides why a program failed, from its output. Pure.

All readers use this: the shim for the termination message, the verdict on a TrainJob, `run`, `list`, `describe`,
`explain`, history and REST. `excerpt` shortens an output so that `read_cause` gives the same answer for the rest.

The cause is the last exception of a Python program, else what a crash printed, else the last line. If several ranks
failed, it is the first one whose error is not a lost connection to another rank. What a launcher prints about its
workers is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.shim.output.launcher import HEADER, LauncherFilter
from trainmaster.shim.output.text import plain_lines
from trainmaster.shim.output.tracebacks import PythonTraceback, find_place, is_own_frame, list_tracebacks, split_prefix

_WRAPPERS = ("ChildFailedError", "SignalException", "ProcessExitedException")
"""Exceptions that launchers raise when a worker failed or they were stopped; never the cause."""
_CONSEQUENCES = (
    r"connection (?:was )?(?:closed by|reset by|refused|aborted)|connectionreseterror|broken ?pipe|no route to host"
    r"|remote (?:process exited|peer)|ncclremoteerror|ncclsystemerror|communicator was aborted|heartbeat timeout"
    r"|collective operation timeout|application timeout caused pair closure|timed out waiting \d+ms for (?:recv|send)"
    r"|client socket has (?:failed|timed out)|socket ?timeout|failed to recv|(?:sendbytes|recvbytes|recvvalue) failed"
    r"|distnetworkerror|diststoreerror|rendezvous(?:connection|timeout|closed)error"
)
"""What a rank reports when another one is gone."""
_SEARCHED = 2000
"""Characters of an error to search for that."""
_TERMINATE = r"terminate called after throwing an instance of '(?P<kind>[^']+)'"
_CRASH = (
    r"terminate called |Fatal Python error: |F\d{4} \d\d:\d\d:\d\d\.|double free or corruption|thread '.*' panicked at "
    r"|\w+\(\): (?:invalid|corrupted|unaligned|double|memory)|\*\*\* (?:stack smashing|buffer overflow|Error in )"
    r"|corrupted (?:size|double-linked|unsorted)|.{1,300}: Assertion .{1,600} failed\."
)
"""The first line of what the C library, C++, Rust or Python prints before it aborts."""
_ERROR = r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?:: |:?$)"
_TORCHRUN = "torchrun: "
_RULE = r"[=\-_*#~^\s]*$"
_NEAR = 12
"""Lines. An error so soon after another one follows from it."""
_ELIDED, _CUT = "  ...", " ..."
"""In place of lines, and at the end of a line."""
_WITHOUT_HEADER = ("SyntaxError", "IndentationError", "TabError")
"""Of a script that cannot be compiled, Python shows the line only."""


@dataclass(frozen=True, slots=True)
class FailureCause:
    error: str = ""
    """Such as `ValueError: no data`; "" if nothing was printed."""
    place: str = ""
    """The line of the program's own code, such as `train.py:12 in step`; "" if unknown."""
    trace: tuple[str, ...] = ()
    """The traceback of a Python program, without prefixes of ranks."""
    is_certain: bool = False
    """Whether an exception or a crash was found. Otherwise `error` is just the last line."""
    is_consequence: bool = False
    """Whether it only says that another rank is gone."""
    at: int = -1
    """The index of the first line that shows it, in the output without the launcher's lines."""


def read_cause(lines: Iterable[str]) -> FailureCause:
    return _decide(*_read(lines))


def _read(lines: Iterable[str]) -> tuple[list[str], str]:
    """(the lines of the program, what its launcher reports)"""
    launcher, own = LauncherFilter[str](), list[str]()
    for text in plain_lines(lines):
        own += launcher.feed(text, text)
    own += launcher.flush()
    while own and not own[-1].strip():
        own.pop()
    return own, launcher.report


def _decide(lines: Sequence[str], report: str) -> FailureCause:
    found = list_tracebacks(lines)
    trace = _choose_trace([entry for entry in found if not any(name in entry[1].error for name in _WRAPPERS)])
    crash = _find_crash(lines)
    if crash is not None and (trace is None or crash.at > trace.error_at + len(trace.more) + _NEAR):
        return crash
    if trace is not None:
        told = (*trace.lines, *(text for text in trace.more if text.strip()))
        return _make_certain(trace.error, trace.start, trace.place, told)
    return _read_last(lines, report)


def _choose_trace(found: Sequence[tuple[str, PythonTraceback]]) -> PythonTraceback | None:
    """Of each rank the last one, because earlier ones were caught; then that of the first rank that failed by itself.
    If ranks have prefixes, only these count: torch adds them to exceptions that nobody caught."""
    last: dict[str, PythonTraceback] = {}
    for prefix, trace in found:
        before = last.get(prefix)
        # Without prefixes, a lost connection directly after another error is that of another rank.
        if before is None or not (_is_consequence(trace.error) and trace.start <= before.error_at + _NEAR):
            last[prefix] = trace
    ranks = [trace for prefix, trace in last.items() if prefix] or list(last.values())
    ranks.sort(key=lambda trace: trace.start)
    return next((trace for trace in ranks if not _is_consequence(trace.error)), ranks[0] if ranks else None)


def _find_crash(lines: Sequence[str]) -> FailureCause | None:
    """The last crash; of several lines in a row that report it, the first."""
    found = -1
    for number in range(len(lines) - 1, -1, -1):
        if found >= 0 and number < found - _NEAR:
            break
        if re.match(_CRASH, split_prefix(lines[number])[1]):
            found = number
    if found < 0:
        return None
    text = split_prefix(lines[found])[1].rstrip()
    following = split_prefix(lines[found + 1])[1].strip() if found + 1 < len(lines) else ""
    if (kind := re.match(_TERMINATE, text)) and following.startswith("what():"):
        text = f"{kind['kind']}: {following.removeprefix('what():').strip()}"
    elif "panicked at" in text and text.endswith(":"):
        text = f"{text} {following}"
    place = _find_python_place(lines[found : found + 60]) if text.startswith("Fatal Python error") else ""
    return _make_certain(text, found, place)


def _find_python_place(lines: Sequence[str]) -> str:
    """faulthandler lists the most recent call first, and without the comma."""
    frames = [re.sub(r", line (\d+) in ", r", line \1, in ", text) for text in lines]
    return find_place(frames[::-1])


def _read_last(lines: Sequence[str], report: str) -> FailureCause:
    """Without a traceback or a crash: a signal, an exception whose traceback is missing, or the last line."""
    if "ended by SIG" in report:
        return FailureCause(f"{_TORCHRUN}{report}", is_certain=True)
    said = [(number, split_prefix(text)[1].strip()) for number, text in enumerate(lines)]
    said = [(number, text) for number, text in said if not re.match(_RULE, text)][-_NEAR:]
    for number, text in reversed(said):
        if re.match(_ERROR, text) and not any(name in text for name in _WRAPPERS):
            return _make_certain(text, number)
    number, text = said[-1] if said else (-1, f"{_TORCHRUN}{report}" if report else "")
    return FailureCause(text, is_certain=text.startswith(_TORCHRUN), at=number)


def _make_certain(error: str, at: int, place: str = "", trace: tuple[str, ...] = ()) -> FailureCause:
    return FailureCause(error, place, trace, is_certain=True, is_consequence=_is_consequence(error), at=at)


def _is_consequence(error: str) -> bool:
    return re.search(_CONSEQUENCES, error[:_SEARCHED].lower()) is not None


def excerpt(lines: Iterable[str], most_lines: int, most_bytes: int) -> str:
    """The part of an output to keep: the traceback and a few lines before it, or the last lines. `read_cause` says the
    same of it as of the whole, unless the error itself is longer than that."""
    own, report = _read(lines)
    cause = _decide(own, report)
    kept = _choose_lines(own, cause, most_lines, most_bytes)
    if cause.is_certain and not cause.error.startswith(read_cause(kept).error.removesuffix(_CUT) or "?"):
        # Lines of many processes are mixed so that the rest reads differently.
        kept = [_cut(cause.error, most_bytes)]
    return "\n".join(kept)


def _choose_lines(own: Sequence[str], cause: FailureCause, most_lines: int, most_bytes: int) -> list[str]:
    if cause.trace:
        is_cut = HEADER not in cause.trace[0] and not cause.error.startswith(_WITHOUT_HEADER)
        body = _shorten_trace((*((HEADER, _ELIDED) if is_cut else ()), *cause.trace), most_lines, most_bytes)
        before = _list_before(own, cause.at, most_lines)
        return [*_take_last(before, most_lines - len(body), most_bytes, body), *body]
    body = [cause.error] if cause.at < 0 and cause.error else []
    last = _take_last(own, most_lines - len(body), most_bytes, body)
    if cause.at >= 0 and cause.at < len(own) - len(last):
        # It is far from the end, for example because the stack of each thread was printed after it.
        body = [*(_cut(text, most_bytes // 4) for text in own[cause.at : cause.at + 2]), _ELIDED]
        return [*body, *_take_last(own[cause.at + 2 :], most_lines - len(body), most_bytes, body)]
    return [*last, *body]


def shorten_output(text: str, end: str, most_lines: int, most_bytes: int) -> str:
    """`end`, the last lines of the output, if they tell the whole cause; else the excerpt."""
    whole, told = read_cause(text.split("\n")), read_cause(end.split("\n"))
    # A last line that is longer than all of `end` is cut at its beginning.
    has_error = whole.error.endswith(told.error) and bool(told.error or not whole.error)
    if has_error and (whole.place, whole.trace) == (told.place, told.trace):
        return end
    return excerpt(text.split("\n"), most_lines, most_bytes)


def _list_before(own: Sequence[str], end: int, most: int) -> Sequence[str]:
    """The lines before a traceback back to the one before it."""
    start = end
    while start > max(0, end - most) and not _is_of_trace(own[start - 1]):
        start -= 1
    return own[start:end]


def _is_of_trace(line: str) -> bool:
    prefix, text = split_prefix(line)
    return bool(prefix) or text[:1].isspace() or re.match(f"{_ERROR}|{_CRASH}", text) is not None


def _take_last(lines: Sequence[str], most_lines: int, most_bytes: int, others: Sequence[str]) -> list[str]:
    """The last lines that fit beside the others. A last line that does not fit is cut at its beginning."""
    room, taken = most_bytes - _measure(others), list[str]()
    for text in reversed(lines):
        size = len(text.encode()) + 1
        if len(taken) >= most_lines or size > room:
            break
        taken.append(text)
        room -= size
    if lines and not taken and most_lines > 0 and room > 1 and not others:
        taken = [lines[-1].encode()[-room:].decode(errors="ignore")]
    return taken[::-1]


def _shorten_trace(trace: Sequence[str], most_lines: int, most_bytes: int) -> list[str]:
    """Keeps the exception and the program's own last frame, then as much as fits: the end first."""
    lines = [_cut(text, most_bytes // 4) for text in trace]
    if not _fits(lines, most_lines, most_bytes):
        lines = [text for text in lines if not re.match(_RULE, text)]
    if _fits(lines, most_lines, most_bytes):
        return lines
    error = next((at for at, text in enumerate(lines) if at and not text[:1].isspace()), len(lines) - 1)
    own = max((at for at in range(error) if is_own_frame(lines[at])), default=error)
    kept = {0, own, min(own + 1, error), error}
    for at in [*range(error - 1, 0, -1), *range(error + 1, len(lines))]:
        if not _fits(_join(lines, {*kept, at}), most_lines, most_bytes):
            break
        kept.add(at)
    return _join(lines, kept)


def _join(lines: Sequence[str], kept: set[int]) -> list[str]:
    joined: list[str] = []
    before = -1
    for at in sorted(kept):
        joined += [_ELIDED] * (at > before + 1) + [lines[at]]
        before = at
    return joined


def _cut(text: str, most_bytes: int) -> str:
    """The beginning of a text that is too long."""
    raw = text.encode()
    return text if len(raw) <= most_bytes else raw[: most_bytes - len(_CUT)].decode(errors="ignore") + _CUT


def _fits(lines: Sequence[str], most_lines: int, most_bytes: int) -> bool:
    return len(lines) <= most_lines and _measure(lines) <= most_bytes


def _measure(lines: Sequence[str]) -> int:
    return sum(len(text.encode()) + 1 for text in lines)
