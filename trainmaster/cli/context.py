"""The context of a command: its streams, the environment and the home; and the flags that all commands share.

Commands never use sys.stdout or os.environ directly, so that tests can call them in-process.
"""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from trainmaster.app.home.folder import Home, default_root
from trainmaster.cli import streams
from trainmaster.cli.servers import suggestions

if TYPE_CHECKING:
    from trainmaster.client.contract import Client

    Serve = Callable[[Callable[[Client], Awaitable[Any]]], Any]

DATA_FORMS = ("table", "json", "yaml")
OBJECT_FORMS = ("table", "wide", "json", "yaml", "name")


class CommandModule(Protocol):
    """A module of `cli/commands`; its docstring describes it in `--help`."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace, context: CommandContext) -> int:
        """Returns the exit code."""
        ...


@dataclass(frozen=True)
class CommandTable:
    """All commands."""

    texts: Mapping[str, str]
    """Command name to its one-line description."""
    load: Callable[[str], CommandModule]


@dataclass(frozen=True)
class CommandContext:
    environ: Mapping[str, str]
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    serve: Serve | None = None
    """For tests: runs the work with another client instead of connecting to a server."""
    table: CommandTable | None = None
    """For shell completion; set by `main`."""
    flags: str = ""
    """What suggested commands need besides: the flags of the cluster that the user named. Set by `main`."""
    _deaf: list[TextIO] = field(default_factory=list, init=False, compare=False)
    """Streams whose reader is gone."""

    def say(self, line: str = "") -> None:
        """Prints a line of the result. If the reader is gone, the line is dropped and the command continues."""
        self._print(line, self.out)

    def note(self, line: str) -> None:
        """Prints a line for people to standard error, separate from the command's result."""
        self._print(line, self.err)

    def ask(self, question: str) -> None:
        """Prints a question, without a newline."""
        self._print(question, self.err, end="")

    def write(self, data: str | bytes, *, flush: bool = False) -> None:
        """Writes a part of a stream. Raises BrokenPipeError if the reader is gone, because the command is then done."""
        self.require_reader()
        try:
            if isinstance(data, str):
                self.out.write(data)
            elif self.out is sys.stdout:
                sys.stdout.buffer.write(data)  # unchanged
            else:
                self.out.write(data.decode(errors="replace"))
            if flush:
                self.out.flush()
        except OSError as error:
            self._lose(self.out, error)
            self.require_reader()

    def require_reader(self) -> None:
        """Raises BrokenPipeError if the reader is gone. For commands that would otherwise never end."""
        if self.out in self._deaf:
            raise BrokenPipeError(errno.EPIPE, "nobody reads standard output any more")

    def _print(self, line: str, stream: TextIO, end: str = "\n") -> None:
        if self.flags:
            line = suggestions.add_flags(line, self.flags)
        try:
            print(line, file=stream, end=end, flush=True)
        except OSError as error:
            self._lose(stream, error)

    def _lose(self, stream: TextIO, error: OSError) -> None:
        if not streams.is_gone(error):
            raise error
        streams.discard(stream)
        self._deaf.append(stream)

    def home(self, options: argparse.Namespace) -> Home:
        return Home(Path(options.home) if options.home else default_root(self.environ))


def add_home(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--home",
        metavar="DIR",
        help="directory with all state (default: $TRAINMASTER_HOME, else trainmaster in your data directory)",
    )


def add_output(parser: argparse.ArgumentParser, forms: tuple[str, ...] = DATA_FORMS) -> None:
    """`forms` is OBJECT_FORMS for commands that print API objects."""
    parser.add_argument("-o", "--output", choices=forms, default="table", help="default: table")
