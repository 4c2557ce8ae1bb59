"""The end of a run: the exit code, and the last lines with suggested commands. Pure.

The exit code of a job is that of the first rank that failed, 128 + signal if a signal ended it. Other outcomes, such as
a lost server, have codes from 240 on (`cli.exits`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from trainmaster.api.training.failing.failures import describe_cause, read_failure_cause
from trainmaster.cli import exits
from trainmaster.cli.view import model
from trainmaster.cli.view.draw import show_span
from trainmaster.cli.view.lines import strip_controls
from trainmaster.cli.view.model import (
    Model,
    Screen,
    describe_failure,
    find_exit_code,
    get_elapsed,
)
from trainmaster.shim.output.cause import FailureCause, excerpt, read_cause

_LAST, _LAST_BYTES = 8, 4096
_TRACE = 30
"""Number of lines of a traceback to show, from its end."""


class FollowingEnd(Enum):
    OVER = "over"
    """The job ended, or was deleted."""
    DETACHED = "detached"
    STOPPED = "stopped"
    """The user stopped the job."""
    LOST = "lost"
    """The server is gone; the state of the job is unknown."""


@dataclass(frozen=True, slots=True)
class Address:
    """The arguments that make a command refer to this job."""

    name: str
    flags: tuple[str, ...] = ()

    def command(self, verb: str, *more: str) -> str:
        return shlex.join(["trainmaster", *verb.split(), self.name, *more, *self.flags])


def choose_code(end: FollowingEnd, screen: Screen) -> int:
    if end is FollowingEnd.DETACHED:
        return exits.RUN_DETACHED
    if end is FollowingEnd.STOPPED:
        return exits.INTERRUPTED
    if end is FollowingEnd.LOST:
        return exits.RUN_LOST
    if screen.state == model.COMPLETE:
        return exits.OK
    code = find_exit_code(screen.failure) if screen.state == model.FAILED else None
    return exits.RUN_ENDED if code is None else code


def build_ending(
    end: FollowingEnd,
    seen: Model,
    address: Address,
    now: datetime,
    why: str = "",
    advice: Sequence[str] = (),
) -> list[str]:
    """The last lines, without the outputs, which the caller adds. `advice`: what helps against its failure."""
    screen = seen.screen
    if end is FollowingEnd.DETACHED:
        return [f"detached; {screen.name} goes on", *_list_commands(address, "watch", "logs", "suspend", "delete")]
    if end is FollowingEnd.STOPPED:
        return [f"{screen.name} is stopped", *_list_commands(address, "resume", "logs", "delete")]
    if end is FollowingEnd.LOST:
        started = "trainmaster up --detach" + "".join(f" {shlex.quote(flag)}" for flag in _home_flags(address))
        return [f"the server is gone ({why}); the job's processes go on without it", f"  {started}", _watch(address)]
    took = show_span(get_elapsed(screen, now))
    if screen.state == model.COMPLETE:
        again = f" after {screen.restarts} restart{'s' * (screen.restarts != 1)}" if screen.restarts else ""
        return [f"{screen.name} is complete{again} ({took})"]
    if screen.state == model.DELETED:
        return [f"{screen.name} was deleted before it ended ({took})", f"  {address.command('history get')}"]
    return _describe_failed(seen, address, took, advice)


def build_detached(address: Address) -> list[str]:
    """The last lines for a job that was not watched."""
    return _list_commands(address, "watch", "logs", "suspend", "delete")


def _describe_failed(seen: Model, address: Address, took: str, advice: Sequence[str]) -> list[str]:
    screen, failure = seen.screen, seen.screen.failure
    if failure is None:
        return [
            f"{screen.name} failed ({took}): {screen.reason}: {screen.message}",
            *_list_commands(address, "describe", "logs"),
        ]
    rank = int(failure.get("rank", 0))
    printed = seen.list_lines(rank) or str(failure.get("message", "")).splitlines()
    cause = read_failure_cause(failure)
    if not cause.is_certain:
        cause = read_cause(printed)  # the program has left another message, or none is kept, as on most clusters
    word = "rank" if screen.processes in ("", "1") else "node"
    attempts = f", after {screen.restarts} restart{'s' * (screen.restarts != 1)}" if screen.restarts else ""
    lines = [f"{screen.name} failed{attempts} ({took}): {describe_failure(failure, word)}"]
    if cause.is_certain:
        lines.append(f"  {describe_cause(cause)}")
    said = _choose_lines(cause, printed)
    if said and not (cause.is_certain and said == [cause.error]):
        lines.append("its traceback:" if cause.trace else "its last lines:")
        lines += [f"  | {strip_controls(line)}" for line in said]
    lines += advice
    return [*lines, "to go on:", *_list_commands(address, "logs", "describe", logs=("--rank", str(rank)))]


def _choose_lines(cause: FailureCause, printed: Sequence[str]) -> list[str]:
    """The traceback, complete if it is among the printed lines; else the last lines."""
    if not cause.trace:
        return excerpt(printed, _LAST, _LAST_BYTES).splitlines()
    whole = read_cause(printed)
    return list(whole.trace if whole.error == cause.error else cause.trace)[-_TRACE:]


_WORDS = {
    "watch": "shows it again as here",
    "logs": "what it printed",
    "describe": "what happened to it, in order",
    "suspend": "stops it; it can be resumed",
    "resume": "lets it go on",
    "delete": "ends it",
}


def _list_commands(address: Address, *verbs: str, logs: Sequence[str] = ()) -> list[str]:
    commands = [address.command(verb, *(logs if verb == "logs" else ())) for verb in verbs]
    width = max(map(len, commands))
    return [f"  {command:<{width}}   {_WORDS[verb]}" for verb, command in zip(verbs, commands, strict=True)]


def _watch(address: Address) -> str:
    return f"  {address.command('watch')}"


def _home_flags(address: Address) -> Sequence[str]:
    flags = list(address.flags)
    return flags[flags.index("--home") :][:2] if "--home" in flags else ()
