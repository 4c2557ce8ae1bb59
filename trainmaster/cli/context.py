"""What every command gets: where to print, the environment, and the home it works on; and the flags that all share.

Commands never touch sys.stdout or os.environ themselves, so tests call them in-process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainmaster.app.home import Home, default_root

if TYPE_CHECKING:
    from trainmaster.client.contract import Client

    Serve = Callable[[Callable[[Client], Awaitable[Any]]], Any]

DATA_FORMS = ("table", "json", "yaml")
OBJECT_FORMS = ("table", "wide", "json", "yaml", "name")


@dataclass(frozen=True)
class Context:
    environ: Mapping[str, str]
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    serve: Serve | None = None
    """In place of a server behind a kubeconfig: does the work with a client of its own. For tests."""

    def say(self, line: str = "") -> None:
        print(line, file=self.out, flush=True)

    def note(self, line: str) -> None:
        """For people only: what must not mix with a command's result."""
        print(line, file=self.err, flush=True)

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
