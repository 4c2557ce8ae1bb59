"""A complete embedded server in one process, without sockets: store, registry, garbage collection, client and view.

For unit, flow and contract tests, usually under virtual time (`testing.virtual`):

    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(...)
            await cluster.settle()

    run_virtual(main())
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

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
from trainmaster.testing.virtual import VirtualClock

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
                store = MemoryStore()
            else:
                store = await stack.enter_async_context(SqliteStore.open(directory, clock))
        registry = ObjectRegistry(store, kinds or catalogue.build(), clock, ids)
        accounts = ServiceAccountTokens(SIGNING_SECRET, StorePolicies(store), clock=clock, ids=ids)
        registry.serve_subresource(SERVICE_ACCOUNTS, "token", build_token_creator(accounts))
        stack.callback(registry.close)
        view = LocalView(registry)
        stack.callback(view.close)
        client = LocalClient(registry, authorizer=authorizer)
        await stack.enter_async_context(registry.running(ROOT_CA))
        yield Cluster(store, registry, client, view, clock, ids)
        _check_shared(store)


def _check_shared(store: Store) -> None:
    """Parsed objects are shared by all in-process readers: checks that nobody has modified one."""
    for bucket in store.buckets():
        for record in store.scan(bucket):
            shared = record.memo.obj if record.memo is not None else None
            if shared is not None and shared != stored.parse(record.value):
                raise AssertionError(f"somebody has changed {bucket} {record.name} in memory, which others read too")
