"""`trainmaster purge --finished`: deletes finished TrainJobs through the API, then purges their records.

Deletion through the API respects finalizers and retention. A record is purged once the server has recorded the
deletion of its job; if that takes too long, the record is left to the next purge.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from trainmaster.app.home.folder import Home, HomeError
from trainmaster.cli import exits
from trainmaster.cli.cleaning import carry_out, make_plan
from trainmaster.cli.context import CommandContext
from trainmaster.cli.output import print_table
from trainmaster.cli.servers.connection import call
from trainmaster.cli.terminal import confirm
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter, RecordLine
from trainmaster.history.purging import purge
from trainmaster.jobs.janitor import FinishedJobFilter
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.kit.clock import SystemClock

_PATIENCE = 15.0
_PAUSE = 0.1


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    options.namespace, options.selector, options.orphans, options.clear_finalizers = "", "", False, False
    plan = call(context, options, lambda client: make_plan(client, options, FinishedJobFilter()))
    records = _list_records(home)
    kinds = {model.gvr: kind for kind, model in TRAINING_KINDS.items()}
    rows = [(f"{item.namespace}/{item.name}", kinds[item.gvr], item.why) for item in plan]
    rows += [(f"{line.namespace}/{line.name}", "record", f"{line.state}, deleted") for line in records]
    if not rows:
        context.say("no finished jobs and no records of deleted ones: nothing to remove")
        return exits.OK
    print_table(context, ("JOB", "WHAT", "WHY"), rows)
    context.say("kept: jobs that are not over, runtimes, volumes, settings")
    if options.dry_run:
        return exits.OK
    if not confirm(context, f"forget these {len(rows)}, with logs and outputs?", yes=options.yes):
        return exits.FAILED
    problems = call(context, options, lambda client: carry_out(client, plan))
    for problem in problems:
        context.note(f"trainmaster: {problem}")
    forgotten = _forget(home, {item.uid for item in plan}, {line.uid for line in records})
    context.say(f"removed {len(plan) - len(problems)} TrainJobs and {forgotten} records with their logs and outputs")
    return exits.FAILED if problems else exits.OK


def _list_records(home: Home) -> list[RecordLine]:
    archive = _open(home.history, read_only=True)
    if archive is None:
        return []
    try:
        return archive.select(Filter(deleted=True))
    finally:
        archive.close()


def _forget(home: Home, deleted: set[str], records: set[str]) -> int:
    archive = _open(home.history, read_only=False)
    if archive is None:
        return 0
    clock = SystemClock()
    end = clock.monotonic() + _PATIENCE
    try:
        while True:
            gone = {line.uid for line in archive.select(Filter(deleted=True))}
            if deleted <= gone or clock.monotonic() > end:
                break
            time.sleep(_PAUSE)
        chosen = sorted(gone & (deleted | records))
        purge(archive, chosen)
        return len(chosen)
    finally:
        archive.close()


def _open(directory: Path, *, read_only: bool) -> Archive | None:
    if not (directory / FILE).exists():
        return None
    try:
        return Archive.open(directory, read_only=read_only)
    except ArchiveError as error:
        raise HomeError(str(error)) from None
