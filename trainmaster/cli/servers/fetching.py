"""What `history` reads from a cluster, each with a connection of its own."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.servers.cluster_records import get_http
from trainmaster.cli.servers.connection import call, get_server
from trainmaster.client.http import HttpClient
from trainmaster.history import cluster
from trainmaster.history.archive import Filter, RecordLine
from trainmaster.history.objects import CompleteRecord
from trainmaster.history.record import JobRecord
from trainmaster.history.rendering import RecordedLog
from trainmaster.jobs.kinds import split_kind
from trainmaster.jobs.logs.contract import JobLogOptions, Line

T = TypeVar("T")


def fetch_lines(options: argparse.Namespace, context: CommandContext, wanted: Filter) -> list[RecordLine]:
    return _ask(options, context, lambda server: cluster.select(server, wanted))


def fetch_record(options: argparse.Namespace, context: CommandContext) -> CompleteRecord:
    """The record that NAME, -n and --uid mean. Failure if there is none."""
    get_server(context, options)
    kind, name = split_kind(options.job)
    wanted = Filter(options.namespace, name, kind=kind, uid=options.uid)
    found = _ask(options, context, lambda server: cluster.find(server, wanted))
    if found is None:
        look = "`trainmaster history list` shows what there is"
        raise exits.Failure(f"no record of {options.namespace}/{options.job}: {look}", exits.NOT_FOUND)
    return found


def fetch_log(
    options: argparse.Namespace,
    context: CommandContext,
    record: JobRecord,
    log: RecordedLog,
    show: Callable[[str, bytes], None],
) -> None:
    """One log of a record, line by line: time and text."""
    place = log.place
    wanted = JobLogOptions(attempt=place.attempt, rank=place.index, job=place.job, container=log.container)

    async def read(server: HttpClient) -> None:
        entries = cluster.read_entries(server, record.namespace, record.uid, wanted, pod=place.id, restart=log.restart)
        async with aclosing(entries):
            async for entry in entries:
                if isinstance(entry, Line):
                    show(entry.time, entry.raw)

    _ask(options, context, read)


def _ask(options: argparse.Namespace, context: CommandContext, question: Callable[[HttpClient], Awaitable[T]]) -> T:
    try:
        return call(context, options, lambda client: question(get_http(client)))
    except cluster.RecordsUnserved as error:
        raise exits.Failure(str(error)) from None
