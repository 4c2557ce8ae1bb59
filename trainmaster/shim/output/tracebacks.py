"""Finds the tracebacks of Python programs in their output. Pure.

Lines of several processes may be mixed; where each line has a prefix (`[rank1]: `), they are told apart by it. The
beginning of a traceback may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.shim.output.launcher import EXCEPTION, HEADER

_PREFIX = r"(?:\[[A-Za-z_]+\d+\]: ?|\[\d+,\d+\]<std(?:err|out)>: ?|\([\w.:]+ pid=\d+(?:, ip=[\d.]+)?\) )+"
"""torch's, torchrun's, mpirun's and Ray's prefix of each line of a rank."""
_FRAME = r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$'
_MARGIN = r"\s+(?:\+-[+-]*(?P<rule>.*)|[|+] ?)"
"""Before each line of an exception group."""
_GROUP = r"(?:\w+\.)*(?:Base)?ExceptionGroup: .*\((?P<count>\d{1,6}) sub-exceptions?\)$"
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_PACKAGES = ("/site-packages/", "/dist-packages/")
_SYSTEM = (*_PACKAGES, "/lib/python", "/bin/", "<frozen ")
_CODE = ("/workspace/code/", "/volumes/code/")
"""Where the code of `run` is: in a sandbox, and at the plain level."""
_MOST_MESSAGE = 10
"""Lines of an exception's message to keep."""


@dataclass(slots=True)
class PythonTraceback:
    start: int
    """The index of its first line in the output."""
    lines: list[str]
    """Without prefixes."""
    error: str = ""
    """The exception, such as `ValueError: no data`; "" if the traceback is incomplete."""
    error_at: int = -1
    """The index of that line in the output."""
    place: str = ""
    """Where it was raised: the last line of the program's own code, `train.py:12 in step`."""
    more: list[str] = field(default_factory=list)
    """The following lines, which may belong to the message."""


def split_prefix(text: str) -> tuple[str, str]:
    """(prefix of the rank, the rest)"""
    match = re.match(_PREFIX, text) if text[:1] in ("[", "(") else None
    return (match[0].strip(), text[match.end() :]) if match else ("", text)


def list_tracebacks(lines: Sequence[str]) -> list[tuple[str, PythonTraceback]]:
    """(prefix, traceback), in the order in which they begin."""
    found: list[tuple[str, PythonTraceback]] = []
    current: dict[str, PythonTraceback] = {}
    for number, line in enumerate(lines):
        prefix, text = split_prefix(line)
        trace = current.get(prefix)
        if trace is not None and _is_group(trace) and not re.match(_MARGIN, text):
            del current[prefix]
            trace = None
        if HEADER in text and (trace is None or not _is_group(trace)):
            current[prefix] = PythonTraceback(number, [text])
            found.append((prefix, current[prefix]))
        elif trace is None:
            if text[:1] == " " and _is_frame(text):
                current[prefix] = PythonTraceback(number, [text])
                found.append((prefix, current[prefix]))
        elif text.startswith(_CHAIN):
            del current[prefix]
        else:
            _extend(trace, text, number)
    for _, trace in found:
        _finish(trace)
    return [(prefix, trace) for prefix, trace in found if trace.error]


def _is_frame(text: str) -> bool:
    return "File " in text and re.match(_FRAME, text) is not None


def _is_group(trace: PythonTraceback) -> bool:
    return "Exception Group " in trace.lines[0]


def _extend(trace: PythonTraceback, text: str, number: int) -> None:
    if _is_group(trace):
        trace.lines.append(text)
        trace.error_at = number
    elif text[:1].isspace() and not trace.more and (not trace.error or _is_frame(text)):
        # Frames after the exception: its message contains another traceback, whose exception follows.
        trace.error = ""
        trace.lines.append(text)
    elif not trace.error and re.match(EXCEPTION, text):
        trace.error, trace.error_at = text.rstrip(), number
        trace.lines.append(text)
    elif trace.error and len(trace.more) < _MOST_MESSAGE:
        trace.more.append(text)


def _finish(trace: PythonTraceback) -> None:
    if _is_group(trace):
        trace.lines = _read_group(trace.lines)
        trace.error = trace.lines[-1]
    elif trace.error.endswith(":") and trace.more and trace.more[0].strip():
        # Such as "RuntimeError: Error(s) in loading state_dict for Net:" with the keys in the next line.
        trace.error = f"{trace.error} {trace.more[0].strip()}"
    trace.place = find_place(trace.lines)


def _read_group(lines: Sequence[str]) -> list[str]:
    """The traceback of the first exception in a group that is not a group itself."""
    part: list[str] = []
    count, outer = 0, [""]
    for line in [*lines[1:], "  +---"]:
        match = re.match(_MARGIN, line)
        if match is None or match["rule"] is None:
            part.append(line[match.end() :] if match else line)
            continue
        at = next((number for number, text in enumerate(part) if re.match(EXCEPTION, text)), None)
        if at is not None:
            error = part[at].rstrip()
            group = re.match(_GROUP, error)
            if group is None:
                more = f" (the first of {count} exceptions in a group)" if count > 1 else ""
                return [*part[:at], error + more]
            count, outer = int(group["count"]), [*part[:at], error]
        part = []
    return outer


def find_place(lines: Sequence[str]) -> str:
    """The last line of the program's own code, else the last of any: `train.py:12 in step`; "" if there is none."""
    own = any_place = ""
    for line in lines:
        match = re.match(_FRAME, line) if "File " in line else None
        if match is None:
            continue
        file, function = match["file"], match["function"] or ""
        any_place = f"{_shorten_path(file)}:{match['line']}"
        any_place += f" in {function}" if function not in ("", "<module>") else ""
        own = own if _is_system(file) else any_place
    return own or any_place


def _shorten_path(file: str) -> str:
    for folder in (*_CODE, *_PACKAGES):
        file = file.rpartition(folder)[2]
    return file


def _is_system(file: str) -> bool:
    """Whether it belongs to Python or an installed package."""
    return any(part in file for part in _SYSTEM)


def is_own_frame(text: str) -> bool:
    """Whether the line names a line of the program's own code."""
    match = re.match(_FRAME, text) if "File " in text else None
    return match is not None and not _is_system(match["file"])
