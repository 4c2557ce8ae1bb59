"""Show what the ranks of a job were doing: where each thread was in the Python code, what its processes waited for, its
memory and GPUs, and its last lines.

Collected before a job is stopped at its deadline or because it stands still, and of ranks that fail; --now looks at a
running job, which goes on. Kept on this machine as long as the record of the job, also when it is deleted.

  trainmaster evidence my-job
  trainmaster evidence my-job --attempt 2
  trainmaster evidence my-job --now
  trainmaster evidence my-job -o json

Exit codes: 0 success, 1 failure, 3 no server (for --now), 7 no such TrainJob, or no evidence of it.
"""

from __future__ import annotations

import argparse

from trainmaster.app.home.control import ControlError, ask
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data
from trainmaster.cli.servers.absent import explain_absent
from trainmaster.cli.servers.kept_jobs import add_job, find_uid
from trainmaster.cli.view.evidence import describe
from trainmaster.history.evidence import Document, find, list_kept

_PATIENCE = 15.0
"""Seconds; the server needs two."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_job(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--attempt", type=int, metavar="N", help="of this attempt, from 0 (default: the last one that has any)"
    )
    which.add_argument("--now", action="store_true", help="look at the running job now; takes at most two seconds")
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.attempt is not None and options.attempt < 0:
        raise exits.Failure("--attempt must be 0 or more", exits.USAGE)
    home = context.home(options)
    uid = find_uid(options, context, home)
    document = _collect(options, home, uid) if options.now else _read(options, home, uid)
    if options.output == "table":
        for line in describe(document, f"{options.namespace}/{options.job}"):
            context.say(line)
    else:
        print_data(context, document, options.output)
    return exits.OK


def _collect(options: argparse.Namespace, home: Home, uid: str) -> Document:
    if home.find_running() is None:
        raise exits.Failure(explain_absent(home, getattr(options, "home", "")), exits.NOT_RUNNING)
    try:
        found = ask(home.root, {"operation": "evidence", "uid": uid}, timeout=_PATIENCE).get("evidence")
    except ControlError as error:
        raise exits.Failure(str(error)) from None
    except OSError as error:
        raise exits.Failure(f"the server does not answer: {error}", exits.NOT_READY) from None
    if found is None:
        text = f"no rank of {options.job} runs: without --now, what was collected before is shown"
        raise exits.Failure(text, exits.NOT_FOUND)
    return dict(found)


def _read(options: argparse.Namespace, home: Home, uid: str) -> Document:
    found = find(home.results, uid, options.attempt)
    if found is None:
        kept = list_kept(home.results, uid)
        which = "" if options.attempt is None else f" of attempt {options.attempt}"
        there = f"there is some of {', '.join(map(str, kept))}" if kept else "--now collects it while the job runs"
        raise exits.Failure(f"there is no evidence{which} of {options.job}: {there}", exits.NOT_FOUND)
    return found
