"""A terminal: its width, colours, text without control characters, and questions before something is removed.

Colours are used on a terminal only, and never if NO_COLOR is set or with TERM=dumb. Without a terminal nothing is
shortened either. All text from a server goes through `clean` before it is shown, so that control characters in it have
no effect.
"""

from __future__ import annotations

import os
import re
from typing import TextIO

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext

GOOD, BAD, WAIT, DIM, BOLD = "good", "bad", "wait", "dim", "bold"
_CODES = {GOOD: "32", BAD: "31", WAIT: "33", DIM: "2", BOLD: "1"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_ELLIPSIS = "…"


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def find_width(context: CommandContext) -> int | None:
    """Columns of the terminal; None if the output is not a terminal. COLUMNS overrides both, as in other tools."""
    text = context.environ.get("COLUMNS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    if not is_terminal(context.out):
        return None
    try:
        columns = os.get_terminal_size(context.out.fileno()).columns
    except (OSError, ValueError):
        return 80
    return columns or 80


def has_colours(context: CommandContext, stream: TextIO | None = None) -> bool:
    environ = context.environ
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream or context.out)


def paint(text: str, style: str) -> str:
    """The text in the style; check `has_colours` first."""
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def clean(text: str) -> str:
    """One line without control characters."""
    return text if text.isprintable() else _CONTROL.sub(" ", text).strip()


def measure(text: str) -> int:
    """The width of the text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    import unicodedata

    def columns(char: str) -> int:
        if unicodedata.combining(char):
            return 0
        return 2 if unicodedata.east_asian_width(char) in "WF" else 1

    return sum(map(columns, text))


def shorten(text: str, width: int) -> str:
    """Cuts the text to at most `width` columns, with an ellipsis."""
    if measure(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while kept and measure(kept) > width - 1:
        kept = kept[:-1]
    return kept.rstrip() + _ELLIPSIS


def wrap(context: CommandContext, text: str, indent: int) -> list[str]:
    """Wraps the text to the terminal's width less `indent` columns; in a pipe it stays one line."""
    width = find_width(context)
    text = clean(text)
    if width is None or measure(text) + indent <= width:
        return [text]
    import textwrap

    return textwrap.wrap(text, max(20, width - indent), break_long_words=False, break_on_hyphens=False)


def confirm(context: CommandContext, question: str, *, yes: bool) -> bool:
    """Whether the user agrees; `yes`: has agreed already, with --yes. Failure if there is no terminal to ask on."""
    if yes:
        return True
    if not is_terminal(context.stdin):
        raise exits.Failure("nothing was changed: there is nobody to ask; add --yes to do it")
    context.ask(f"{question} Type yes: ")
    if context.stdin.readline().strip().lower() == "yes":
        return True
    context.note("nothing was changed")
    return False
