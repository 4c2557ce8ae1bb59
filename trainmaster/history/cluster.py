"""Records of a cluster, from the operator that has the archive, through the API server and with the caller's rights.

For the command line. What a cluster without such an operator answers becomes `RecordsUnserved`, with what to do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_RECORDS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import ListOptions, ObjectList
from trainmaster.client.http import Unreachable, build_path
from trainmaster.history.archive import Filter, RecordLine
from trainmaster.history.objects import CompleteRecord, read_complete, read_line
from trainmaster.jobs.logs.contract import Entry, JobLogOptions
from trainmaster.jobs.logs.encoding import decode_entry

_PAGE = 500


class RecordServer(Protocol):
    """The part of a client over HTTP that is needed here."""

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object: ...

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ...) -> ObjectList: ...

    def stream(self, path: str, query: Mapping[str, object]) -> AsyncIterator[bytes]: ...


class RecordsUnserved(Exception):
    """The cluster serves no records of jobs; the text says why and what to do."""


async def select(server: RecordServer, wanted: Filter) -> list[RecordLine]:
    """Newest first. Raises RecordsUnserved, and StatusError if the caller may not read them."""
    asked = {"record.name": wanted.name, "record.kind": wanted.kind, "record.state": wanted.state}
    selector = ",".join(f"{field}={value}" for field, value in asked.items() if value)
    found: list[RecordLine] = []
    token = ""
    while True:
        size = min(_PAGE, wanted.limit - len(found)) if wanted.limit else _PAGE
        options = ListOptions(field_selector=selector, limit=size, continue_token=token)
        try:
            page = await server.list(JOB_RECORDS, wanted.namespace, options)
        except StatusError as error:
            raise _explain(error) from error
        found += map(read_line, page.items)
        token = page.continue_token
        if not token or 0 < wanted.limit <= len(found):
            return found


async def find(server: RecordServer, wanted: Filter) -> CompleteRecord | None:
    """The newest record that fits; `wanted.uid` may be the beginning of one. Raises as `select`."""
    lines = await select(server, replace(wanted, uid="", limit=0 if wanted.uid else 1))
    for line in lines:
        if line.uid.startswith(wanted.uid):
            try:
                return read_complete(await server.get(JOB_RECORDS, line.uid, line.namespace))
            except NotFound:
                # Purged meanwhile.
                return None
            except StatusError as error:
                raise _explain(error) from error
    return None


async def read_entries(
    server: RecordServer,
    namespace: str,
    uid: str,
    wanted: JobLogOptions,
    *,
    pod: str = "",
    restart: int | None = None,
) -> AsyncGenerator[Entry, None]:
    """What the processes printed. `pod`, `restart`: only of that Pod (`PodPlace.id`), only of that run."""
    query: dict[str, object] = {"format": "entries", "step": wanted.job, "container": wanted.container, "pod": pod}
    query |= {"rank": wanted.rank, "attempt": wanted.attempt, "restart": restart}
    query |= {"sinceTime": wanted.since_time, "tailLines": wanted.tail}
    query |= {"allAttempts": "true"} if wanted.attempt is None and not wanted.last_attempt else {}
    path = build_path(JOB_RECORDS, namespace, uid, "log")
    pieces = server.stream(path, {key: value for key, value in query.items() if value not in ("", None)})
    rest = b""
    async with aclosing(_explained(pieces)) as explained:
        async for piece in explained:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield decode_entry(line)


async def _explained(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in pieces:
            yield piece
    except StatusError as error:
        raise _explain(error) from error


def _explain(error: StatusError) -> Exception:
    """An API server that does not know the group says 404 without a name, and one that does not reach the operator
    503. If the API server itself cannot be reached, the caller says so."""
    if isinstance(error, Unreachable):
        return error
    if error.code == 404 and not error.details.get("name"):
        return RecordsUnserved(
            "this cluster serves no records of jobs: it needs an operator with --history, and the output of "
            "`trainmaster operator --print-manifests --records` with its flags"
        )
    if error.code == 503:
        return RecordsUnserved(
            f"the operator that has the records of this cluster does not answer ({error.message.strip()}): "
            f"`kubectl get apiservice {JOB_RECORDS.version}.{JOB_RECORDS.group}` says why"
        )
    return error
