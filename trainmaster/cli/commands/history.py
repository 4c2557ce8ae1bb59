"""Records of finished and deleted jobs: list, get, logs, rerun, export, purge.

Reads the archive in the home, so it needs no running server; with --kubeconfig or --context, that of the operator of a
cluster, with your rights there. The record of a TrainJob is written when it ends, and completed when it is deleted,
whether by its TTL, with kubectl, or with its namespace.

  trainmaster history list
  trainmaster history get my-job
  trainmaster history logs my-job --rank 1
  trainmaster history rerun my-job --name my-job-again
  trainmaster history export my-job my-job.tar.gz
  trainmaster history purge --older-than 90d

Exit codes: 0 success, 1 failure, 7 no such record.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import name_object, print_data, print_table
from trainmaster.cli.servers.flags import add_cluster, add_kind, add_namespaces, is_cluster, read_job
from trainmaster.cli.spans import parse_span
from trainmaster.history import exporting, purging, rendering
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter, RecordLine
from trainmaster.history.evidence import list_kept, locate
from trainmaster.history.logs import list_logs, read_lines
from trainmaster.history.objects import CompleteRecord
from trainmaster.history.record import JobRecord
from trainmaster.history.rendering import RecordedLog
from trainmaster.history.results import list_outputs
from trainmaster.jobs.kinds import read_training_job, split_kind
from trainmaster.kit.clock import SystemClock

Log = TypeVar("Log", bound=RecordedLog)

_LOOK = "`trainmaster history list` shows what there is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _add(commands, "list", "the newest first")
    add_namespaces(listing, "only this namespace (default: all; on a cluster that of the kubeconfig)")
    add_kind(listing, "only jobs of this kind, such as pytorchjob (default: all)")
    listing.add_argument(
        "--state", choices=("Complete", "Failed", "Deleted"), help="only jobs that ended in this state"
    )
    listing.add_argument("--limit", type=int, default=0, metavar="N", help="maximum number of lines")
    add_output(listing)
    add_cluster(listing)
    get = _add_job(commands, "get", "the record of one job")
    add_output(get)
    add_cluster(get)
    logs = _add_job(commands, "logs", "what its processes printed")
    add_cluster(logs)
    logs.add_argument(
        "--rank", type=int, metavar="N", help="only this node (default: all, each line prefixed with its rank)"
    )
    logs.add_argument(
        "--job",
        dest="replicated",
        default="",
        metavar="NAME",
        help="only this replicated job of the runtime (node, launcher)",
    )
    logs.add_argument(
        "--attempt", type=int, metavar="N", help="only this attempt of the gang, from 0 (default: the last)"
    )
    logs.add_argument("--all-attempts", action="store_true", help="every attempt, in order")
    logs.add_argument("--container", default="", metavar="NAME", help="only this container")
    logs.add_argument("--timestamps", action="store_true", help="prefix each line with its time")
    rerun = _add_job(commands, "rerun", "submit the same TrainJob again")
    add_cluster(rerun)
    rerun.add_argument(
        "--name", default="", dest="new_name", metavar="NAME", help="name of the new job (default: the same)"
    )
    rerun.add_argument("--dry-run", action="store_true", help="print the manifest instead of submitting it")
    export = _add_job(commands, "export", "record, manifest, runtime and logs as one archive")
    export.add_argument("file", metavar="FILE", help="a .tar.gz that does not exist yet")
    purge = _add(commands, "purge", "forget records, logs, outputs and checkpoints of deleted jobs")
    purge.add_argument(
        "job", nargs="?", type=read_job, default="", metavar="NAME", help="only records of jobs with this name"
    )
    add_namespaces(purge, "only this namespace (default: all)", default="")
    purge.add_argument(
        "--older-than", default="", metavar="SPAN", help="only jobs that ended longer ago than this: 90d, 12h"
    )
    purge.add_argument("--all", action="store_true", help="all records of deleted jobs")
    purge.add_argument("--yes", action="store_true", help="delete; without this, only show what would be deleted")


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    add_home(parser)
    parser.add_argument(
        "--archive", default="", metavar="DIR", help="archive of an operator (its --history) instead of the home's"
    )
    return parser


def _add_job(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = _add(commands, name, text)
    parser.add_argument(
        "job", type=read_job, metavar="NAME", help="name of the TrainJob, or KIND/NAME; the newest if there are several"
    )
    add_kind(parser)
    text = "default: default; on a cluster that of the kubeconfig"
    parser.add_argument("-n", "--namespace", metavar="NAME", help=text)
    parser.add_argument("--uid", default="", metavar="UID", help="uid, or the beginning of it, as shown by `list`")
    return parser


def run(options: argparse.Namespace, context: CommandContext) -> int:
    # What talks to a server is imported where it is used, because the archive of a home needs none.
    if is_cluster(options):
        if options.archive:
            text = "--archive is a directory of this machine: leave it out, or --kubeconfig and --context"
            raise exits.Failure(text, exits.USAGE)
        return _ON_CLUSTER[options.action](options, context)
    if options.namespace is None:
        options.namespace = "default" if getattr(options, "job", "") else ""
    directory = Path(options.archive) if options.archive else context.home(options).history
    try:
        if options.archive and not (directory / FILE).exists():
            raise ArchiveError(f"there is no archive in {directory}")
        archive = Archive.open(directory, read_only=options.action != "purge")
    except ArchiveError:
        if (directory / FILE).exists():
            raise exits.Failure(f"the archive in {directory} cannot be opened: is it yours?") from None
        if options.archive:
            raise exits.Failure(f"there is no archive in {directory}") from None
        context.note(f"there is no history in {directory.parent} yet: it begins with the first job")
        return exits.NOT_FOUND if getattr(options, "job", "") else exits.OK
    try:
        return _ACTIONS[options.action](options, context, archive)
    except ArchiveError as error:
        raise exits.Failure(str(error)) from None
    finally:
        archive.close()


def _list(options: argparse.Namespace, context: CommandContext, archive: Archive) -> int:
    _print_lines(options, context, archive.select(_build_filter(options)))
    return exits.OK


def _list_on_cluster(options: argparse.Namespace, context: CommandContext) -> int:
    from trainmaster.cli.servers.connection import get_server
    from trainmaster.cli.servers.fetching import fetch_lines

    # It says which namespace is meant.
    get_server(context, options)
    _print_lines(options, context, fetch_lines(options, context, _build_filter(options)))
    return exits.OK


def _build_filter(options: argparse.Namespace) -> Filter:
    kind, _ = split_kind(f"{options.kind}/" if options.kind else "")
    return Filter(options.namespace, kind=kind, state=options.state or "", limit=options.limit)


def _print_lines(options: argparse.Namespace, context: CommandContext, found: Sequence[RecordLine]) -> None:
    if options.output != "table":
        print_data(context, [rendering.to_data(line) for line in found], options.output)
    elif not found:
        context.note("no records")
    else:
        print_table(context, *rendering.build_table(found))


def _get(options: argparse.Namespace, context: CommandContext, archive: Archive) -> int:
    record = _find(options, archive)
    logs = list_logs(archive.directory, archive.list_jobsets(record.uid))
    _print_record(options, context, CompleteRecord(record, logs, archive.list_points(record.uid)))
    if options.output == "table" and (left := list_outputs(archive.directory, record.uid)):
        where = "" if record.namespace == "default" else f" -n {record.namespace}"
        size = sum(output.bytes for output in left)
        context.say(f"Outputs:    {len(left)}, {size} bytes: `trainmaster outputs list {record.name}{where}`")
    if options.output == "table" and (kept := list_kept(locate(archive.directory), record.uid)):
        where = "" if record.namespace == "default" else f" -n {record.namespace}"
        attempts = ", ".join(map(str, kept))
        context.say(f"Evidence:   of attempt {attempts}: `trainmaster evidence {record.name}{where}`")
    return exits.OK


def _get_on_cluster(options: argparse.Namespace, context: CommandContext) -> int:
    from trainmaster.cli.servers.fetching import fetch_record

    _print_record(options, context, fetch_record(options, context))
    return exits.OK


def _print_record(options: argparse.Namespace, context: CommandContext, complete: CompleteRecord) -> None:
    record, logs, points = complete.record, complete.logs, complete.points
    if options.output != "table":
        print_data(context, rendering.to_full_data(record, logs, points), options.output)
        return
    for line in rendering.describe(record, logs, points):
        context.say(line)


def _logs(options: argparse.Namespace, context: CommandContext, archive: Archive) -> int:
    record = _find(options, archive)
    kept = list_logs(archive.directory, archive.list_jobsets(record.uid))
    chosen = _choose(options, record, kept)
    for log in chosen:
        prefix = _build_prefix(log, chosen)
        for moment, text in read_lines(log):
            _print_line(options, context, prefix, moment, text)
    return exits.OK


def _logs_on_cluster(options: argparse.Namespace, context: CommandContext) -> int:
    from trainmaster.cli.servers.fetching import fetch_log, fetch_record

    complete = fetch_record(options, context)
    chosen = _choose(options, complete.record, complete.logs)
    for log in chosen:
        print_line = partial(_print_line, options, context, _build_prefix(log, chosen))
        fetch_log(options, context, complete.record, log, print_line)
    return exits.OK


def _choose(options: argparse.Namespace, record: JobRecord, kept: Sequence[Log]) -> list[Log]:
    if not kept:
        raise exits.Failure(f"no logs of {record.namespace}/{record.name} were kept: its Pods never started")
    chosen = [log for log in kept if _wanted(options, log, kept)]
    if not chosen:
        raise exits.Failure(f"no such log; there are: {rendering.name_logs(kept)}", exits.NOT_FOUND)
    return chosen


def _build_prefix(log: Log, chosen: Sequence[Log]) -> bytes:
    lone = len({(log.place.attempt, log.place.id, log.container) for log in chosen}) == 1
    return b"" if lone else f"[{rendering.name_log(log)}] ".encode()


def _print_line(options: argparse.Namespace, context: CommandContext, prefix: bytes, moment: str, text: bytes) -> None:
    head = f"{moment} ".encode() if options.timestamps else b""
    context.write(prefix + head + text + b"\n")


def _wanted(options: argparse.Namespace, log: RecordedLog, kept: Sequence[RecordedLog]) -> bool:
    is_chosen = options.attempt in (None, log.place.attempt)
    if options.attempt is None and not options.all_attempts:
        is_chosen = log.place.round == max(other.place.round for other in kept)
    return (
        is_chosen
        and options.rank in (None, log.place.index)
        and options.replicated in ("", log.place.job)
        and options.container in ("", log.container)
    )


def _rerun(options: argparse.Namespace, context: CommandContext, archive: Archive) -> int:
    return _submit_again(options, context, _find(options, archive))


def _rerun_on_cluster(options: argparse.Namespace, context: CommandContext) -> int:
    from trainmaster.cli.servers.fetching import fetch_record

    return _submit_again(options, context, fetch_record(options, context).record)


def _submit_again(options: argparse.Namespace, context: CommandContext, record: JobRecord) -> int:
    manifest = exporting.build_manifest(record, options.new_name or record.name)
    derived = exporting.find_derived(record)
    if options.dry_run:
        if derived is not None:
            print_data(context, derived, "yaml")
            context.say("---")
        print_data(context, manifest, "yaml")
        return exits.OK
    from trainmaster.cli.servers.connection import call

    created = call(context, options, lambda client: exporting.submit(client, manifest, derived))
    context.say(f"{name_object(read_training_job(created).gvr, created['metadata']['name'])} created")
    return exits.OK


def _export(options: argparse.Namespace, context: CommandContext, archive: Archive) -> int:
    record = _find(options, archive)
    logs = list_logs(archive.directory, archive.list_jobsets(record.uid))
    path = Path(options.file).expanduser().absolute()
    if path.exists():
        raise exits.Failure(f"{path} exists; choose another name")
    exporting.write(path, record, logs, archive.list_points(record.uid))
    context.say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB, {len(logs)} logs)")
    return exits.OK


def _purge(options: argparse.Namespace, context: CommandContext, archive: Archive) -> int:
    if not (options.job or options.older_than or options.all):
        raise exits.Failure("say what to forget: a NAME, --older-than SPAN, or --all", exits.USAGE)
    before = ""
    if options.older_than:
        try:
            before = purging.find_moment(parse_span(options.older_than), SystemClock().now())
        except ValueError as error:
            raise exits.Failure(f"--older-than: {error}", exits.USAGE) from None
    kind, name = split_kind(options.job)
    found = archive.select(Filter(options.namespace, name, kind=kind, deleted=True, before=before))
    if not found and options.job:
        raise exits.Failure(f"no record of a deleted job {options.job}: {_LOOK}", exits.NOT_FOUND)
    if not found:
        context.note("nothing to forget: only records of deleted jobs can be purged")
        return exits.OK
    print_table(context, *rendering.build_table(found))
    if not options.yes:
        context.note(f"{len(found)} records would be forgotten with their logs; add --yes to do it")
        return exits.OK
    purging.purge(archive, [line.uid for line in found])
    context.say(f"forgot {len(found)} records and their logs")
    return exits.OK


def _find(options: argparse.Namespace, archive: Archive) -> JobRecord:
    kind, name = split_kind(options.job)
    found = archive.select(Filter("" if options.uid else options.namespace, name, kind=kind))
    chosen = [line for line in found if line.uid.startswith(options.uid)]
    if not chosen:
        raise exits.Failure(f"no record of {options.namespace}/{options.job}: {_LOOK}", exits.NOT_FOUND)
    record = archive.find(chosen[0].uid)
    assert record is not None
    return record


_ON_CLUSTER = {
    "list": _list_on_cluster,
    "get": _get_on_cluster,
    "logs": _logs_on_cluster,
    "rerun": _rerun_on_cluster,
}
_ACTIONS = {"list": _list, "get": _get, "logs": _logs, "rerun": _rerun, "export": _export, "purge": _purge}
