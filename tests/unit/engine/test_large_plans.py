"""Plans of hundreds of writes are cut into transactions, in order, and stop at the first refusal; events repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS
from trainmaster.client.writes import Applied, Create, Write
from trainmaster.engine.apply import LARGEST, apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.plan import Note
from trainmaster.store.memory import MemoryStore
from trainmaster.store.state import MOST_BEHIND, StoreState
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def make_config(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def list_names(cluster: Cluster) -> list[str]:
    names = [obj["metadata"]["name"] for obj in (await cluster.client.list(CONFIG_MAPS, "default")).items]
    return [name for name in names if name.startswith("a-")]


def test_others_get_their_turn_within_a_large_plan_and_nothing_of_it_is_lost() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            writes = [Create(CONFIG_MAPS, make_config(f"a-{number:04d}")) for number in range(LARGEST * 3)]
            applying = asyncio.ensure_future(apply_in_one(cluster.client)(writes, "test"))
            seen = []
            while not applying.done():
                await asyncio.sleep(0)
                seen.append(len(await list_names(cluster)))
            assert (await applying).refusal is None
            assert LARGEST in seen and len(await list_names(cluster)) == LARGEST * 3

    run_virtual(main())


class _Client:
    """Applies writes without an API server."""

    def __init__(self, store: StoreState) -> None:
        self._store = store
        self.catch_up = store.catch_up

    def apply_atomically(self, writes: Sequence[Write], *, field_manager: str) -> Applied:
        for _ in writes:
            self._store.put("a", f"n{self._store.revision}", b"")
        return Applied(None, self._store.revision)


@pytest.mark.parametrize("size", [1, LARGEST * 20], ids=["small", "large"])
def test_plans_do_not_run_far_ahead_of_the_disk(size: int) -> None:
    async def main() -> None:
        store = MemoryStore(manual=True)
        apply = apply_in_one(_Client(store))
        writes = [Create(CONFIG_MAPS, make_config(f"a-{number:04d}")) for number in range(size)]

        async def apply_many() -> None:
            while store.revision < 200:
                await apply(writes, "test")

        applying = asyncio.ensure_future(apply_many())
        await asyncio.sleep(1)
        assert MOST_BEHIND < store.revision <= MOST_BEHIND + LARGEST
        while not applying.done():
            store.commit()
            await asyncio.sleep(1)

    run_virtual(main())


@pytest.mark.parametrize(("count", "kept"), [(LARGEST, 0), (LARGEST * 3, LARGEST)], ids=["one", "several"])
def test_a_plan_stops_at_the_transaction_that_is_refused(count: int, kept: int) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            writes = [Create(CONFIG_MAPS, make_config(f"a-{number:04d}")) for number in range(count)]
            writes[kept + 3] = Create(CONFIG_MAPS, make_config("Not A Name"))
            applied = await apply_in_one(cluster.client)(writes, "test")
            assert applied.refusal is not None and applied.refusal.write == writes[kept + 3]
            assert len(await list_names(cluster)) == kept

    run_virtual(main())


def test_an_event_that_says_the_same_again_is_counted() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            recorder = EventRecorder(cluster.client, cluster.clock, apply=apply_in_one(cluster.client))
            about = await cluster.client.create(CONFIG_MAPS, make_config("a-1"), "default")
            for _ in range(3):
                await recorder.record(Note(about, "Reason", "text"), "test")
            events = (await cluster.client.list(EVENTS, "default")).items
            assert [(event["reason"], event["count"]) for event in events] == [("Reason", 3)]

    run_virtual(main())
