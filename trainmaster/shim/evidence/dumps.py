"""Stacks that a program writes itself, when it is asked to by a signal: where py-spy is missing or not permitted.

`trainmaster.report` installs Python's `faulthandler` for `SIGNAL`, with a file in memory that can be recognised
(`trainmaster.progress`). Nobody else is ever sent the signal, because it would end the program: it must have the file,
and catch the signal.
"""

from __future__ import annotations

import os
import re
import time

from trainmaster.shim.evidence.proc import Facts, read_text
from trainmaster.shim.loop import get_monotonic

NAME = "trainmaster-stacks"
SIGNAL = 59
"""A real-time signal that nothing is known to use. Both as in `trainmaster.progress`."""
_LINK = f"/memfd:{NAME}"
_MOST_BYTES = 256 << 10
_PAUSE = 0.01
_PATIENCE = 0.3
_HEAD = re.compile(r"(Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


class NoDump(Exception):
    """The program writes none; the text is the end of a sentence."""


def ask(pid: int, patience: float = _PATIENCE) -> list[Facts]:
    """The stacks of all its threads, as the program wrote them. Raises NoDump."""
    path = _find_file(pid)
    if not path or not _catches(pid):
        raise NoDump("it does not report progress, so it cannot be asked for its stacks either")
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoDump(f"it cannot be asked for its stacks: {error.strerror}") from None
    try:
        os.ftruncate(file, 0)
        os.kill(pid, SIGNAL)
        content = _read_written(file, patience)
        os.ftruncate(file, 0)
    except OSError as error:
        raise NoDump(f"it cannot be asked for its stacks: {error.strerror}") from None
    finally:
        os.close(file)
    if not content:
        raise NoDump(f"it did not write its stacks within {patience:g} s")
    return parse(content.decode(errors="replace"))


def parse(text: str) -> list[Facts]:
    """Of the output of `faulthandler`, in the form of `stacks`."""
    threads: list[Facts] = []
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            name = head[3] or ("MainThread" if head[1] == "Current thread" else "")
            threads.append({"name": name, "tid": 0, "frames": []})
        elif threads and (frame := _FRAME.fullmatch(line)) is not None:
            number = int(frame[2]) if frame[2].isdigit() else 0
            threads[-1]["frames"].append({"function": frame[3], "file": frame[1], "line": number})
    return threads


def _find_file(pid: int) -> str:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            if os.readlink(f"{folder}/{name}").startswith(_LINK):
                return f"{folder}/{name}"
    except OSError:
        return ""
    return ""


def _catches(pid: int) -> bool:
    for line in read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _read_written(file: int, patience: float) -> bytes:
    """Until nothing more is written for a moment."""
    until = get_monotonic() + patience
    size = 0
    while get_monotonic() < until:
        time.sleep(_PAUSE)
        now = os.fstat(file).st_size
        if now and now == size:
            break
        size = now
    return os.pread(file, _MOST_BYTES, 0)
