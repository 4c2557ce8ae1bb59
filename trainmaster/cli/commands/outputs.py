"""Output files of jobs: their output directory, and what rank 0 wrote next to its code and to $HOME; also of deleted
jobs.

A program writes to $TRAINMASTER_OUTPUT_DIR, to its working directory or to $HOME. All of it is kept on this machine as
long as the record of the job (`trainmaster history`). `workdir/` is the working directory of rank 0 in the last
attempt, `home/` its home directory, `earlier/` those of attempts before it.

  trainmaster outputs list my-job
  trainmaster outputs get my-job --to results
  trainmaster outputs get my-job model.pt workdir/plots

Exit codes: 0 success, 1 failure, 7 no such TrainJob or file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainmaster.app.home.folder import Home
from trainmaster.bundles.walking import format_bytes
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.outputs import count_outputs
from trainmaster.cli.servers.kept_jobs import add_action, find_uid
from trainmaster.history.lost_files import describe_lost, list_lost
from trainmaster.history.results import OUTPUTS, RESULTS, Output, choose, list_outputs, open_output
from trainmaster.jobs.kinds import split_kind
from trainmaster.shim.trees import copy_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add_action(commands, "list", "all files with their sizes")
    add_output(listing)
    get = add_action(commands, "get", "copy them to a directory of yours")
    get.add_argument("paths", nargs="*", metavar="PATH", help="files or directories (default: all)")
    get.add_argument(
        "--to", default="", metavar="DIR", help="target directory, created if missing (default: NAME-outputs)"
    )
    get.add_argument("--overwrite", action="store_true", help="replace existing files")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    uid = find_uid(options, context, home)
    found = list_outputs(home.history, uid)
    if options.action == "get":
        return _get(options, context, found)
    if options.output != "table":
        print_data(context, [_to_data(output) for output in found], options.output)
    elif not found:
        context.note(f"{options.job} has left no files so far: programs write them to $TRAINMASTER_OUTPUT_DIR")
    else:
        rows = [(_show(output.path), format_bytes(output.bytes), _format_time(output.modified)) for output in found]
        print_table(context, ("PATH", "SIZE", "MODIFIED"), rows)
    if lost := describe_lost(list_lost(home.history, uid, found)):
        context.note(lost)
    return exits.OK


def _get(options: argparse.Namespace, context: CommandContext, found: Sequence[Output]) -> int:
    chosen, missing = choose(found, options.paths) if options.paths else (list(found), [])
    if missing:
        names, look = ", ".join(missing), f"`trainmaster outputs list {options.job}`"
        raise exits.Failure(f"{options.job} has left no {names}: {look} shows what it left", exits.NOT_FOUND)
    target = Path(options.to or f"{split_kind(options.job)[1]}-outputs")
    there = [output.path for output in chosen if os.path.lexists(target / output.path)]
    if there and not options.overwrite:
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise exits.Failure(
            f"{', '.join(there[:3])}{more} is in {target} already: choose another directory with --to, or --overwrite"
        )
    for output in chosen:
        copy(output, target / output.path)
    context.say(f"{count_outputs(chosen)}: {target}" if chosen else f"{options.job} has left no files so far")
    return exits.OK


def copy(output: Output, target: Path) -> None:
    """Copies atomically: the target is complete or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
    try:
        if output.link:
            os.symlink(output.link, draft)
        else:
            _copy_file(output, draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _copy_file(output: Output, draft: Path) -> None:
    source = open_output(output)
    try:
        with draft.open("xb") as target:
            copy_data(source, target.fileno())
            status = os.fstat(source)
            os.fchmod(target.fileno(), status.st_mode & 0o777)
            os.utime(target.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(source)


def _to_data(output: Output) -> dict[str, object]:
    data = {"path": _show(output.path), "bytes": output.bytes, "modified": _format_time(output.modified)}
    return {**data, "link": _show(output.link)} if output.link else data


def _show(path: str) -> str:
    """Makes a file name printable, because it may contain bytes that are not text."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def get_directory(home: Home, uid: str) -> Path:
    """The job's TRAINMASTER_OUTPUT_DIR on this machine."""
    return home.history / RESULTS / uid / OUTPUTS
