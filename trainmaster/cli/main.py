"""The command line: finds the command, parses, calls, and turns errors into one sentence and an exit code.

A command is a module with `add_arguments(parser)` and `run(options, context) -> exit code`. Only the module of the
command that was asked for is imported, so `trainmaster status` does not load a server.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence

import trainmaster
from trainmaster.app.home.folder import AlreadyRunning, HomeError
from trainmaster.cli import exits, streams
from trainmaster.cli.context import CommandContext
from trainmaster.kit.late_methods import late_methods

COMMANDS = {
    "run": "Train: start a server if none runs, send the code, submit a job, show it, end with its exit code",
    "watch": "Show a job live again, as `run` does, and end with its exit code",
    "init": "Write a starter project: train.py, a manifest and a README",
    "submit": "Submit TrainJobs and what they need from manifests: -f FILE, DIR or -",
    "list": "List TrainJobs with state, reason, progress and age; --watch goes on",
    "get": "Show TrainJobs by name; -o yaml for the whole object",
    "describe": "Describe a TrainJob: state and why, ranks, terms, events, what to type next",
    "logs": "Print what all ranks print, merged; -f follows across restarts",
    "explain": "Say why a TrainJob does not run, and the smallest change that would start it now",
    "top": "Show what jobs use now: CPU, memory and GPUs, per job and rank",
    "exec": "Run a program beside a rank of a TrainJob, a shell for example",
    "wait": "Wait until TrainJobs are complete, running, finished, suspended or gone",
    "suspend": "Stop the Pods of TrainJobs and give their room to others",
    "resume": "Let suspended TrainJobs go on",
    "restart": "Begin the next attempt of a running TrainJob; submit one that has ended again",
    "delete": "Delete TrainJobs and all that belongs to them",
    "check": "Say what becomes of every field of a manifest here, and whether a server would take it",
    "runtimes": "List runtimes with framework, nodes and who uses them",
    "nodes": "List nodes with instance type, architecture, OS, GPUs and capacity type",
    "up": "Start the control plane of a home (foreground; --detach for the background)",
    "status": "Say whether a server runs, where it listens and where its kubeconfig is",
    "down": "Stop the server; Pods live on unless --stop-jobs",
    "kubeconfig": "Print the path of the owner's kubeconfig",
    "config": "Print the effective settings and where each came from",
    "outputs": "What jobs left behind, also after they are gone: list, get",
    "code": "Code of jobs without an image: pack a directory, list what is kept",
    "history": "What happened to jobs, also after they are gone: list, get, logs, rerun, export, purge",
    "cleanup": "Delete finished TrainJobs, orphans and stuck ones; shows its plan first",
    "service": "Let systemd run the server from boot on: install, uninstall, status",
    "backup": "Write a consistent copy of all objects to a file, also while the server runs",
    "restore": "Replace all objects by those of a backup",
    "purge": "Remove a home, or all that finished jobs have left in it; shows its plan and asks",
    "operator": "Work on a Kubernetes cluster in place of Kubeflow Trainer's manager",
    "rest": "Serve the REST API alone, before a cluster or the server of a home",
    "tenant": "People who share this installation: add, list, rotate, disable, enable, delete",
    "doctor": "Say what is wrong with this machine, or with a TrainJob, and how to fix it",
    "completion": "Print what makes bash, zsh or fish complete commands, options and names of jobs",
    "version": "Print the version",
}

_HEADINGS = {"run": "jobs", "up": "server", "outputs": "what jobs leave", "service": "administration"}
"""A heading before the command of that name."""

_EPILOG = """\
Start with:
  trainmaster run --nodes 2 train.py
or, with kubectl:
  trainmaster up --detach
  export KUBECONFIG=$(trainmaster kubeconfig)
  kubectl get namespaces

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no server runs, 4 not ready, 5 another process runs the home,
6 timed out, 7 no such object.
`trainmaster COMMAND --help` says more about one command."""

# About files and disks; one line says it all. Anything else is a bug, and its traceback is wanted.
_FOR_THE_PERSON = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG,
)  # fmt: skip


def build_overview() -> argparse.ArgumentParser:
    """The parser for `trainmaster` alone: what there is."""
    width = max(map(len, COMMANDS))
    listing = ""
    for name, text in COMMANDS.items():
        if name in _HEADINGS:
            listing += f"\n{_HEADINGS[name]}:\n"
        listing += f"  {name:<{width}}  {text}\n"
    parser = argparse.ArgumentParser(
        prog="trainmaster",
        usage="trainmaster COMMAND [options]",
        description=f"Runs distributed training jobs behind the Kubernetes API.\n{listing.rstrip()}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainmaster {trainmaster.__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=list(COMMANDS), help=argparse.SUPPRESS)
    return parser


def suggest(word: str) -> str:
    """What to say about a command that does not exist."""
    import difflib

    close = difflib.get_close_matches(word, COMMANDS, n=2, cutoff=0.6)
    close += [name for name in COMMANDS if name.startswith(word) and name not in close]
    text = f"{word!r} is no command"
    if close:
        text += "; did you mean " + " or ".join(f"`trainmaster {name}`" for name in close[:3]) + "?"
    return f"{text} `trainmaster --help` lists all" if close else f"{text}; `trainmaster --help` lists all"


def main(argv: Sequence[str], context: CommandContext | None = None) -> int:
    """Runs one command; returns its exit code."""
    context = context or CommandContext(os.environ)
    try:
        if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
            raise exits.Failure(suggest(argv[0]), exits.USAGE)
        if not argv or argv[0] not in COMMANDS:
            build_overview().parse_args(list(argv) or ["--help"])
            return exits.OK
        with late_methods():
            module = importlib.import_module(f"trainmaster.cli.commands.{argv[0].replace('-', '_')}")
        parser = argparse.ArgumentParser(
            prog=f"trainmaster {argv[0]}",
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(parser)
        code: int = module.run(parser.parse_args(argv[1:]), context)
        return code
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
        # `trainmaster logs -f my-job | head`: the reader has seen enough.
        return exits.OK
    except OSError as error:
        if error.errno not in _FOR_THE_PERSON:
            raise
        return _fail(context, error, exits.FAILED)


def _fail(context: CommandContext, error: Exception, code: int) -> int:
    context.note(f"trainmaster: {error}")
    return code


def entry() -> None:
    streams.open_missing()
    try:
        code = main(sys.argv[1:])
    except Exception:  # noqa: BLE001 - a bug; Python would say 120 for it where nobody hears its traceback
        sys.excepthook(*sys.exc_info())
        code = exits.FAILED
    sys.exit(streams.finish(code))
