"""`trainmaster check` for the REST API: with the runtimes and the queue that the caller may read.

Imports the server in memory and the scheduler on first use. Everything that takes long is done in threads, two requests
at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.client.contract import Client
from trainmaster.client.listed import ListedView, fetch
from trainmaster.jobs.submission.documents import ManifestDocument, parse_bounded
from trainmaster.rest.contract import CheckManifests

_AT_ONCE = 2
SOURCE = "manifests"
"""What stands for the file's name."""


def build_check() -> CheckManifests:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def check(client: Client, namespace: str, text: str, start: bool) -> list[Object]:
        async with turn:
            documents = await asyncio.to_thread(parse_bounded, SOURCE, text)
            view = await _collect(client, namespace, documents, start=start)
            return await asyncio.to_thread(_examine, documents, namespace, view, start)

    return check


async def _collect(client: Client, namespace: str, documents: Sequence[ManifestDocument], *, start: bool) -> ListedView:
    await asyncio.to_thread(_load)
    from trainmaster.app.checking.examining import list_namespaces
    from trainmaster.controllers.explain.gathering import collect

    named = {one or namespace for one in list_namespaces(documents)} or {namespace}
    space = next(iter(named)) if len(named) == 1 else ""
    if start:
        return await collect(client, space)
    return await fetch(client, {TRAINING_RUNTIMES: space, CLUSTER_TRAINING_RUNTIMES: ""})


def _load() -> None:
    """Called in a thread, so that the imports do not block the event loop."""
    from trainmaster.app.checking import comparing, examining, rehearsal  # noqa: F401


def _examine(documents: Sequence[ManifestDocument], namespace: str, view: ListedView, start: bool) -> list[Object]:
    """In a thread with a loop of its own: the server in memory is a coroutine that never waits."""
    from trainmaster.app.checking.comparing import compare_with_server
    from trainmaster.app.checking.examining import examine, to_data

    machine = compare_with_server(view, "this server") if start else None
    reports = asyncio.run(examine(documents, namespace, machine, runtimes=view))
    return [to_data(report, machine.name if machine is not None else "") for report in reports]
