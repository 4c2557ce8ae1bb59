"""A complete embedded server in one process, without sockets: store, registry, garbage collection, client and view.

For unit, flow and contract tests, usually under virtual time (`testing.virtual`):

    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(...)
            await cluster.settle()

    run_virtual(main())
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.resources import SERVICE_ACCOUNTS
from trainmaster.apiserver import stored
from trainmaster.apiserver.http.subresources.token_requests import build_token_creator
from trainmaster.apiserver.local import LocalAuthorizer, LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.apiserver.stored_policies import StorePolicies
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids, SeededIds
from trainmaster.store.contract import Store
from trainmaster.store.memory import MemoryStore
from trainmaster.store.sqlite import SqliteStore
from trainmaster.testing.virtual import VirtualClock, run_virtual

SIGNING_SECRET = b"a test signs with this secret, known to all"
ROOT_CA = "-----BEGIN CERTIFICATE-----\n(a test)\n-----END CERTIFICATE-----\n"


@dataclass(slots=True)
class Cluster:
    store: Store
    registry: ObjectRegistry
    client: LocalClient
    view: LocalView
    clock: Clock
    ids: Ids

    async def settle(self) -> None:
        """Returns once garbage collection and namespace clean-up have nothing left to do."""
        await self.registry.settled()


@asynccontextmanager
async def running_cluster(
    *,
    directory: Path | None = None,
    store: Store | None = None,
    clock: Clock | None = None,
    kinds: Catalogue | None = None,
    authorizer: LocalAuthorizer | None = None,
    seed: int = 1,
) -> AsyncIterator[Cluster]:
    """In memory, or in SQLite if `directory` is given; a given `store` stays open."""
    clock = clock or VirtualClock()
    ids = SeededIds(seed)
    async with AsyncExitStack() as stack:
        if store is None:
            if directory is None:
                starts_alike = kinds is None and isinstance(clock, VirtualClock)
                store = _prepare_empty().copy() if starts_alike else MemoryStore()
            else:
                store = await stack.enter_async_context(SqliteStore.open(directory, clock))
        registry = ObjectRegistry(store, kinds or catalogue.build(), clock, ids)
        registry.state.proves = True
        accounts = ServiceAccountTokens(SIGNING_SECRET, StorePolicies(store), clock=clock, ids=ids)
        registry.serve_subresource(SERVICE_ACCOUNTS, "token", build_token_creator(accounts))
        stack.callback(registry.close)
        view = LocalView(registry)
        stack.callback(view.close)
        client = LocalClient(registry, authorizer=authorizer)
        await stack.enter_async_context(registry.running(ROOT_CA))
        yield Cluster(store, registry, client, view, clock, ids)
        _check_shared(store)


def prepare_store(fill: Callable[[LocalClient], Coroutine[Any, Any, None]]) -> MemoryStore:
    """What a first start and `fill` write. Tests start hundreds of clusters: each on a copy costs a fraction."""
    store = MemoryStore()

    async def main() -> None:
        async with running_cluster(store=store, seed=0) as cluster:
            await fill(cluster.client)
            await cluster.settle()

    # In a thread, because the caller may be in an event loop, whose time would show in the objects.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: run_virtual(main())).result()
    return store


@cache
def _prepare_empty() -> MemoryStore:
    async def add_nothing(client: LocalClient) -> None:
        """Only the first start writes."""

    return prepare_store(add_nothing)


_parse = lru_cache(512)(stored.parse)


def _check_shared(store: Store) -> None:
    """Parsed objects are shared by all in-process readers: checks that nobody has modified one."""
    for bucket in store.buckets():
        for record in store.scan(bucket):
            shared = record.memo.obj if record.memo is not None else None
            if shared is not None and shared != _parse(record.value):
                raise AssertionError(f"somebody has changed {bucket} {record.name} in memory, which others read too")
