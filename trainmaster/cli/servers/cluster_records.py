"""Records of jobs of a cluster, for commands whose job is gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.history import cluster
from trainmaster.history.archive import Filter
from trainmaster.history.objects import CompleteRecord
from trainmaster.history.record import JobRecord
from trainmaster.jobs.kinds import split_kind
from trainmaster.jobs.logs.contract import Entry, JobLogOptions


async def find_record(client: Client, namespace: str, reference: str) -> CompleteRecord | None:
    """The newest record of a job that is gone. None also if the cluster has no records, or the caller may not read
    them: what was asked for is another thing."""
    kind, name = split_kind(reference)
    try:
        return await cluster.find(get_http(client), Filter(namespace, name, kind=kind))
    except (cluster.RecordsUnserved, StatusError):
        return None


async def read_entries(client: Client, record: JobRecord, wanted: JobLogOptions) -> AsyncGenerator[Entry, None]:
    """What the processes of a job printed. Failure if the operator does not answer."""
    entries = cluster.read_entries(get_http(client), record.namespace, record.uid, wanted)
    try:
        async with aclosing(entries):
            async for entry in entries:
                yield entry
    except cluster.RecordsUnserved as error:
        raise exits.Failure(str(error)) from None


def get_http(client: Client) -> HttpClient:
    assert isinstance(client, HttpClient), "a cluster is reached over HTTP"
    return client
