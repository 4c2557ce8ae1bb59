"""Print the logs of a TrainJob: all ranks merged by time, each line prefixed with its rank.

  trainmaster logs my-job                 the newest attempt; of a v1 job, such as a PyTorchJob, all of them
  trainmaster logs -f my-job              waits for the start, follows across restarts, ends with the job
  trainmaster logs my-job --rank 1 --attempt 0
  trainmaster logs my-job --step dataset-initializer

Works while the job exists, after it was deleted, and without a running server (from the history of the home). On a
cluster (--kubeconfig), logs of Pods that are gone come from the operator, if it keeps records. Notices about attempts
and gaps go to standard error.

Exit codes: 0 success (with -f: the job has finished), 7 no such TrainJob, rank, attempt, step or container.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainmaster.api.status import NotFound
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import build_missing, find_record
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.cli.servers.flags import add_kind, read_job
from trainmaster.cli.spans import parse_span
from trainmaster.client.contract import Client
from trainmaster.jobs.logs.contract import ATTEMPT, TROUBLE, Entry, JobLogOptions, Line, NothingKept
from trainmaster.jobs.logs.folding import REPORT_LINES, fold_entries
from trainmaster.jobs.logs.places import LogSource, find_absent, list_kept_sources, list_log_sources
from trainmaster.jobs.logs.stream import watch_kept_lines, watch_lines
from trainmaster.jobs.lookups import get_training_job, read_parts
from trainmaster.kit.clock import SystemClock, format_time

if TYPE_CHECKING:
    from trainmaster.history.kept_logs import KeptLogs
    from trainmaster.history.objects import CompleteRecord

_V1_CONTAINERS = frozenset(framework.container for framework in FRAMEWORKS)
"""The main containers of v1 jobs."""
_RANK_COLOURS = ("36", "35", "34", "33", "32", "31")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", type=read_job, metavar="JOB", help="name of the TrainJob, or KIND/NAME")
    add_kind(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the job has finished")
    parser.add_argument(
        "--rank", type=int, metavar="N", help="only this node (default: all, each line prefixed with its rank)"
    )
    parser.add_argument(
        "--attempt", type=int, metavar="N", help="only this attempt of the gang, from 0 (default: the newest)"
    )
    parser.add_argument("--all-attempts", action="store_true", help="all available attempts, in order")
    parser.add_argument(
        "--step",
        default="",
        metavar="NAME",
        help="only this job of the runtime or replica type: node, launcher, worker",
    )
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="only this container")
    parser.add_argument("--since", default="", metavar="SPAN", help="only newer lines: 30s, 5m, 2h")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each rank")
    parser.add_argument(
        "--raw", action="store_true", help="also what torchrun prints about a failed worker, otherwise one line"
    )
    parser.add_argument("--timestamps", action="store_true", help="prefix each line with its time")
    parser.add_argument("--no-prefix", action="store_true", help="do not prefix lines with their rank")
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    wanted = read_wanted(options)
    kept = None if is_cluster(options) else _open_kept(options, context)
    prefix = not options.no_prefix and options.rank is None
    printer = Printer(context, prefix=prefix, timestamps=options.timestamps, live=options.follow)

    async def work(client: Client) -> int:
        try:
            if _is_selective(options):
                job = await get_training_job(client, options.namespace, options.name)
                _check(options, wanted, await list_log_sources(client, job, kept or NothingKept()))
            lines = watch_lines(client, SystemClock(), options.namespace, options.name, wanted, kept)
            count = await _print_all(options, lines, printer)
            if not count and kept is None and await _is_gone(client, options):
                return await _print_gone(options, context, client, wanted, printer)
            return count
        except NotFound:
            found = find_record(options, context, options.namespace, options.name)
            if kept is None or found is None:
                printed = await _print_deleted(options, context, client, wanted, printer)
                if printed is None:
                    raise await build_missing(client, options.namespace, options.name) from None
                return printed
            context.note(f"{options.namespace}/{options.name} was deleted; this is from its history")
            return await _print_kept(options, wanted, kept, found.uid, printer)

    try:
        count = call(context, options, work)
    except exits.Failure as failure:
        if failure.code != exits.NOT_RUNNING or kept is None:
            raise
        options.namespace = options.namespace or "default"
        found = find_record(options, context, options.namespace, options.name)
        if found is None:
            raise
        context.note(f"no server runs; this is from the history of {options.namespace}/{options.name}")
        count = asyncio.run(_print_kept(options, wanted, kept, found.uid, printer))
    if not count:
        context.note(_explain_nothing(options))
    return exits.OK


def read_wanted(options: argparse.Namespace) -> JobLogOptions:
    since = ""
    if options.since:
        try:
            since = format_time(SystemClock().now() - timedelta(seconds=parse_span(options.since)))
        except ValueError as error:
            raise exits.Failure(f"--since: {error}", exits.USAGE) from None
    if options.tail is not None and options.tail < 0:
        raise exits.Failure("--tail: a number of lines, 0 or more", exits.USAGE)
    if options.attempt is not None and options.all_attempts:
        raise exits.Failure("--attempt and --all-attempts do not go together", exits.USAGE)
    return JobLogOptions(
        follow=options.follow,
        attempt=options.attempt,
        last_attempt=options.attempt is None and not options.all_attempts,
        rank=options.rank,
        job={"trainer": "node"}.get(options.step, options.step),
        container=options.container,
        since_time=since,
        tail=options.tail if options.raw or options.follow or not options.tail else options.tail + REPORT_LINES,
    )


def _is_selective(options: argparse.Namespace) -> bool:
    return options.rank is not None or options.attempt is not None or bool(options.step or options.container)


def _check(options: argparse.Namespace, wanted: JobLogOptions, sources: Collection[LogSource]) -> None:
    """Failure if the job has no such rank, attempt, step or container."""
    if text := find_absent(options.name, wanted, sources):
        raise exits.Failure(text, exits.NOT_FOUND)


async def _is_gone(client: Client, options: argparse.Namespace) -> bool:
    """Whether the job has ended, and none of its Pods is left."""
    job = await get_training_job(client, options.namespace, options.name)
    return job.is_finished and not (await read_parts(client, job)).pods


async def _print_gone(
    options: argparse.Namespace, context: CommandContext, client: Client, wanted: JobLogOptions, printer: Printer
) -> int:
    """Of a job on a cluster that has ended, from its record."""
    from trainmaster.cli.servers.cluster_records import find_record as find_remote

    text = f"{options.name} has ended and its Pods are gone"
    found = await find_remote(client, options.namespace, options.name)
    if found is None or not found.logs:
        context.note(f"{text}, with what they printed; an operator with --history would have kept it")
        return 1
    context.note(f"{text}; this is from the archive of the operator")
    return await _print_remote(options, client, wanted, found, printer)


async def _print_deleted(
    options: argparse.Namespace, context: CommandContext, client: Client, wanted: JobLogOptions, printer: Printer
) -> int | None:
    """Of a job on a cluster that was deleted; None if there is no record of it."""
    from trainmaster.cli.servers.cluster_records import find_record as find_remote

    found = await find_remote(client, options.namespace, options.name) if is_cluster(options) else None
    if found is None:
        return None
    context.note(f"{options.namespace}/{options.name} was deleted; this is from the archive of the operator")
    if not found.logs:
        context.note(f"no logs of it were kept: {'; '.join(found.record.document['gaps']) or 'it printed nothing'}")
        return 1
    return await _print_remote(options, client, wanted, found, printer)


async def _print_remote(
    options: argparse.Namespace, client: Client, wanted: JobLogOptions, found: CompleteRecord, printer: Printer
) -> int:
    from trainmaster.cli.servers.cluster_records import read_entries

    if _is_selective(options):
        _check(options, replace(wanted, follow=False), list_kept_sources(found.logs))
    return await _print_all(options, read_entries(client, found.record, wanted), printer)


def _explain_nothing(options: argparse.Namespace) -> str:
    if _is_selective(options) or options.since:
        return f"{options.name} has printed nothing that fits"
    if options.follow:
        return f"{options.name} has ended without printing anything"
    return f"{options.name} has printed nothing yet; `trainmaster logs -f {options.name}` waits for it"


async def _print_all(options: argparse.Namespace, lines: AsyncGenerator[Entry, None], printer: Printer) -> int:
    entries = lines if options.raw else fold_entries(lines, None if options.follow else options.tail)
    async with aclosing(entries):
        async for entry in entries:
            printer.show(entry)
    return printer.count


async def _print_kept(
    options: argparse.Namespace, wanted: JobLogOptions, kept: KeptLogs, uid: str, printer: Printer
) -> int:
    if _is_selective(options):
        _check(options, replace(wanted, follow=False), list_kept_sources(kept.list_logs(uid, ())))
    return await _print_all(options, watch_kept_lines(uid, wanted, kept), printer)


def _open_kept(options: argparse.Namespace, context: CommandContext) -> KeptLogs:
    # Imported here because only a home with a history needs SQLite.
    from trainmaster.history.kept_logs import KeptLogs

    return KeptLogs(context.home(options).history)


class Printer:
    """Lines to standard output as bytes, marks to standard error."""

    def __init__(self, context: CommandContext, *, prefix: bool, timestamps: bool, live: bool) -> None:
        self._context = context
        self._flush = live or terminal.is_terminal(context.out)
        self._prefix, self._timestamps = prefix, timestamps
        self._colours = terminal.has_colours(context)
        self._pods: dict[tuple[int, str, int, str], str] = {}
        """The Pod that printed last, by attempt, rank and container."""
        self.count = 0

    def show(self, entry: Entry) -> None:
        if isinstance(entry, Line):
            self.count += 1
            self._tell_pod(entry)
            time = f"{entry.time} ".encode() if self._timestamps else b""
            self._context.write(self._build_prefix(entry) + time + entry.raw + b"\n", flush=self._flush)
        elif entry.kind == ATTEMPT:
            self._context.note(f"--- {entry.text}")
        else:
            head = "" if entry.kind == TROUBLE else f"{entry.kind}: "
            self._context.note(f"--- {head}{terminal.clean(entry.text)}")

    def _tell_pod(self, line: Line) -> None:
        """Says so when another Pod of a rank prints in the same attempt, as after a suspension."""
        key = (line.attempt, line.job, line.rank, line.container)
        before = self._pods.setdefault(key, line.pod)
        if before != line.pod:
            self._pods[key] = line.pod
            self._context.note(f"--- {line.job} {line.rank} from Pod {line.pod.partition('~')[0]}")

    def _build_prefix(self, line: Line) -> bytes:
        if not self._prefix:
            return b""
        text = f"[{line.rank}]" if line.job == "node" else f"[{line.job} {line.rank}]"
        if line.container not in ("node", line.job) and (line.job == "node" or line.container not in _V1_CONTAINERS):
            text = f"{text[:-1]} {line.container}]"
        if self._colours:
            text = f"\x1b[{_RANK_COLOURS[line.rank % len(_RANK_COLOURS)]}m{text}\x1b[0m"
        return f"{text} ".encode()
