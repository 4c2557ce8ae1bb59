"""Entry point of the command line: finds and runs a command, and turns errors into one sentence and an exit code.

Only the requested command is imported, so `trainmaster status` does not load a server.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainmaster.app.home.folder import AlreadyRunning, HomeError
from trainmaster.cli import exits, streams
from trainmaster.cli.commands import COMMANDS, HEADINGS, SERVERS, load_command
from trainmaster.cli.context import CommandContext, CommandTable
from trainmaster.cli.servers.flags import apply_kind
from trainmaster.cli.servers.suggestions import read_flags
from trainmaster.kit.late_methods import late_methods
from trainmaster.version import __version__

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_EPILOG = """\
Start with:
  trainmaster run --nodes 2 train.py
or, with kubectl:
  trainmaster up --detach
  export KUBECONFIG=$(trainmaster kubeconfig)
  kubectl get namespaces

Exit codes: 0 success, 1 failure, 2 invalid command line, 3 no server is running, 4 not ready, 5 another process runs
the home, 6 timeout, 7 no such object.
`trainmaster COMMAND --help` describes a command."""

# Errors of files and disks, reported in one line. Any other OSError is a bug and needs its traceback.
_FOR_THE_PERSON = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG,
)  # fmt: skip


class CommandParser(argparse.ArgumentParser):
    """Accepts whole flags only, because a new flag would make some abbreviations ambiguous. Keeps its exit code if its
    output cannot be written, as argparse does since Python 3.11.4."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Also for the parser of an action, so that the error shows the usage of the action."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._explain_unknown(unknown))
        return found, unknown

    def _explain_unknown(self, unknown: list[str]) -> str:
        text = f"unrecognized arguments: {' '.join(unknown)}"
        flag = unknown[0].partition("=")[0]
        meant = [name for name in self._option_string_actions if flag.startswith("--") and name.startswith(flag)]
        return f"{text} (did you mean {' or '.join(meant)}?)" if meant else text

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        with suppress(OSError):
            super()._print_message(message, file)


def build_overview() -> argparse.ArgumentParser:
    """The parser for `trainmaster` without a command, which lists all commands."""
    width = max(map(len, COMMANDS))
    listing = ""
    for name, text in COMMANDS.items():
        if name in HEADINGS:
            listing += f"\n{HEADINGS[name]}:\n"
        listing += f"  {name:<{width}}  {text}\n"
    parser = CommandParser(
        prog="trainmaster",
        usage="trainmaster COMMAND [options]",
        description=f"Runs distributed training jobs behind the Kubernetes API.\n{listing.rstrip()}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainmaster {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=list(COMMANDS), help=argparse.SUPPRESS)
    return parser


def suggest(word: str) -> str:
    """The message for a command that does not exist."""
    import difflib

    close = difflib.get_close_matches(word, COMMANDS, n=2, cutoff=0.6)
    close += [name for name in COMMANDS if name.startswith(word) and name not in close]
    text = f"{word!r} is no command"
    if close:
        text += "; did you mean " + " or ".join(f"`trainmaster {name}`" for name in close[:3]) + "?"
    return f"{text} `trainmaster --help` lists all" if close else f"{text}; `trainmaster --help` lists all"


def main(argv: Sequence[str], context: CommandContext | None = None) -> int:
    """Runs one command; returns its exit code."""
    context = replace(context or CommandContext(os.environ), table=CommandTable(COMMANDS, load_command))
    try:
        if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
            raise exits.Failure(suggest(argv[0]), exits.USAGE)
        if not argv or argv[0] not in COMMANDS:
            build_overview().parse_args(list(argv) or ["--help"])
            return exits.OK
        module = load_command(argv[0])
        parser = CommandParser(
            prog=f"trainmaster {argv[0]}",
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(parser)
        options = parser.parse_args(argv[1:])
        apply_kind(options)
        context = replace(context, flags=read_flags(options))
        # For what the command imports while it runs. Web frameworks inspect the methods of classes, so not for servers.
        with nullcontext() if argv[0] in SERVERS else late_methods():
            return module.run(options, context)
    except SystemExit as stop:  # argparse: help, or a wrong command line that it has already explained
        return stop.code if isinstance(stop.code, int) else exits.USAGE
    except AlreadyRunning as error:
        return _fail(context, error, exits.ALREADY_RUNNING)
    except exits.Failure as error:
        return _fail(context, error, error.code)
    except HomeError as error:
        return _fail(context, error, exits.FAILED)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as in `trainmaster logs -f my-job | head`.
        return exits.OK
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not _has_current_directory():
            return _fail(
                context, "the current directory was removed: change to another one, and try again", exits.FAILED
            )
        if error.errno not in _FOR_THE_PERSON:
            raise
        return _fail(context, error, exits.FAILED)


def _has_current_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _fail(context: CommandContext, error: Exception | str, code: int) -> int:
    context.note(f"trainmaster: {error}")
    return code


def entry() -> None:
    # Python's 700 would visit the objects of the modules again and again while they are loaded.
    gc.set_threshold(100_000)
    streams.open_missing()
    try:
        code = main(sys.argv[1:])
    except Exception:  # noqa: BLE001 - a bug; Python would say 120 for it where nobody hears its traceback
        sys.excepthook(*sys.exc_info())
        code = exits.FAILED
    # Or every object is visited once more at the end, which takes a tenth of the time of a short command.
    gc.freeze()
    sys.exit(streams.finish(code))
