"""Named points at which a test can make the process fail. When none is armed, `hit` only checks an empty dict.

Code under test calls `failpoints.hit("store.before_commit")`. A test arms a failpoint in code; a crash harness does so
through the environment, which `app` reads and passes to `arm`:

    store.before_commit=kill          SIGKILL of this process: nothing runs afterwards
    store.before_commit=kill@3        at the third hit
    store.commit=error(disk gone)     raises Failpoint
    store.compact=sleep(0.2)          blocks the thread, as a slow disk does

Several are separated by ";". `error` and `sleep` fire at every hit from the n-th on.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SPEC = re.compile(
    r"^(?P<name>[a-z0-9_.]+)=(?P<action>kill|error|sleep)(?:\((?P<argument>[^)]*)\))?(?:@(?P<nth>\d+))?$"
)


class Failpoint(Exception):
    """Raised by an armed `error`."""


class _Armed:
    __slots__ = ("action", "hits", "nth")

    def __init__(self, action: Callable[[], None], nth: int) -> None:
        self.action = action
        self.nth = nth
        self.hits = 0


_armed: dict[str, _Armed] = {}


def hit(name: str) -> None:
    if _armed:
        point = _armed.get(name)
        if point is not None:
            point.hits += 1
            if point.hits >= point.nth:
                point.action()


def arm(spec: str) -> list[str]:
    """Arms the failpoints in `spec` (see above) and returns their names. ValueError if it cannot be parsed."""
    names = []
    for part in filter(None, (piece.strip() for piece in spec.split(";"))):
        match = _SPEC.match(part)
        if match is None:
            raise ValueError(f"failpoint {part!r}: want name=kill|error(text)|sleep(seconds), optionally @n")
        action = _build_action(match["name"], match["action"], match["argument"] or "")
        _armed[match["name"]] = _Armed(action, int(match["nth"] or 1))
        names.append(match["name"])
    return names


def _build_action(name: str, action: str, argument: str) -> Callable[[], None]:
    if action == "kill":
        return lambda: os.kill(os.getpid(), signal.SIGKILL)
    if action == "sleep":
        seconds = float(argument)
        return lambda: time.sleep(seconds)

    def fail() -> None:
        raise Failpoint(argument or name)

    return fail


@contextmanager
def calling(name: str, action: Callable[[], None], *, nth: int = 1) -> Iterator[None]:
    """Within the block, runs `action` at the n-th hit and at every later one."""
    _armed[name] = _Armed(action, nth)
    try:
        yield
    finally:
        _armed.pop(name, None)


def disarm_all() -> None:
    _armed.clear()
