"""Shows a job and its end. Shared by `run` and `watch`.

Uses the live panel if standard output is a capable terminal, else plain lines (a pipe, CI, TERM=dumb).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from trainmaster.api.meta import Fields
from trainmaster.api.status import StatusError
from trainmaster.cli import terminal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.view.contract import FollowingView
from trainmaster.cli.view.endings import Address, FollowingEnd, build_ending, choose_code
from trainmaster.cli.view.keys import Keyboard
from trainmaster.cli.view.live import Live
from trainmaster.cli.view.model import FAILED, Model
from trainmaster.cli.view.panel import Panel
from trainmaster.cli.view.plain import Plain
from trainmaster.cli.view.session import Followed, FollowingSession, Lines
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock

if TYPE_CHECKING:
    from trainmaster.cli.view.attaching import Attachment


@dataclass(frozen=True, slots=True)
class Showing:
    """The job to show, and where to show it."""

    context: CommandContext
    client: Client
    clock: Clock
    model: Model
    address: Address
    lines: Lines
    is_gone: Callable[[], str] = lambda: ""
    form: str = "text"
    closing: Callable[[], list[str]] = lambda: []
    """The last lines for a finished job: where its outputs are."""
    advise: Callable[[Fields], Awaitable[list[str]]] | None = None
    """Returns what helps against a failure (`status.failure`)."""
    attachment: Attachment | None = None
    """What connects the terminal with the program."""


def build_address(options: argparse.Namespace, name: str) -> Address:
    """Includes the flags that the user passed, so that suggested commands can be copied."""
    flags: list[str] = []
    if options.namespace not in (None, "", "default"):
        flags += ["-n", options.namespace]
    for flag in ("home", "kubeconfig", "context"):
        if getattr(options, flag, None):
            flags += [f"--{flag}", str(getattr(options, flag))]
    return Address(name, tuple(flags))


def wants_panel(context: CommandContext, form: str) -> bool:
    environ = context.environ
    quiet = environ.get("TERM", "dumb") == "dumb" or environ.get("CI", "") not in ("", "0", "false")
    return form == "text" and not quiet and terminal.is_terminal(context.out) and _is_in_front(context)


def _is_in_front(context: CommandContext) -> bool:
    """Whether we run in the foreground. A background process (`&`) is stopped if it changes terminal modes."""
    try:
        return os.tcgetpgrp(context.out.fileno()) == os.getpgrp()
    except OSError:
        return False


async def show_job(showing: Showing) -> int:
    """Shows the job until it is over or the user leaves; returns the exit code."""
    model = showing.model
    live, keyboard = _build_live(showing)
    view: FollowingView = live or _build_plain(showing)
    session = FollowingSession(
        showing.client,
        showing.clock,
        model,
        view,
        showing.lines,
        is_gone=showing.is_gone,
        fold=showing.form == "text",
        attachment=showing.attachment,
    )
    with Keyboard(session.answers, live, keyboard).listening():
        try:
            followed = await session.follow()
        except BrokenPipeError:
            # The reader has closed the pipe, as in `run ... | head`; the job continues.
            followed = Followed(FollowingEnd.DETACHED)
    now = showing.clock.now()
    advice = await _list_advice(showing, followed)
    lines = build_ending(followed.end, model, showing.address, now, followed.why, advice)
    code = choose_code(followed.end, model.screen)
    if followed.end is FollowingEnd.OVER:
        lines += showing.closing()
    elif showing.attachment is not None:
        lines += showing.attachment.list_hints()
    _print_ending(showing, lines, code)
    return code


async def _list_advice(showing: Showing, followed: Followed) -> list[str]:
    screen = showing.model.screen
    if showing.advise is None or followed.end is not FollowingEnd.OVER or screen.state != FAILED or not screen.failure:
        return []
    try:
        return await showing.advise(screen.failure)
    except (StatusError, OSError):
        return []  # the server has just gone; the rest of the ending is known


def _build_live(showing: Showing) -> tuple[Live | None, TextIO | None]:
    context = showing.context
    if showing.attachment is not None or not wants_panel(context, showing.form):
        return None, None
    keyboard = sys.stdin if sys.stdin is not None and terminal.is_terminal(sys.stdin) else None
    colours = terminal.has_colours(context)
    panel = Panel(context.out, keyboard, colours=colours)
    return Live(showing.model, panel, showing.clock, colours=colours, can_ask=keyboard is not None), keyboard


def _build_plain(showing: Showing) -> Plain:
    if showing.attachment is None or not showing.attachment.tty:
        return Plain(showing.context, showing.form)
    # Imported here because few runs have a conversation.
    from trainmaster.cli.view.attaching import AttachedView

    return AttachedView(showing.context, showing.attachment)


def _print_ending(showing: Showing, lines: list[str], code: int) -> None:
    context, screen = showing.context, showing.model.screen
    if showing.form == "json":
        Plain(context, "json").print_result(screen.state, code, "\n".join(lines))
        return
    colours = terminal.has_colours(context, context.err)
    for number, line in enumerate(lines):
        text = f"trainmaster: {line}" if number == 0 else line
        if number == 0 and colours:
            text = terminal.paint(text, terminal.BAD if screen.state == FAILED else terminal.BOLD)
        context.note(text)
