"""The size of an object is judged wherever it is written; what is larger already can still be dealt with."""

from __future__ import annotations

import orjson
import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.apiserver.admission import sizes
from trainmaster.apiserver.admission.sizes import ObjectLimits
from trainmaster.client.contract import PatchType
from trainmaster.client.writes import Create, Patch
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

CONFIG_MAPS = GVR("", "v1", "configmaps")
LIMITS = ObjectLimits(most_bytes=100_000, most_values=10_000)


def make(name: str, size: int, **metadata: object) -> Object:
    meta = {"name": name, "namespace": "default", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "x" * size}}


@pytest.mark.parametrize(
    ("value", "most", "want"),
    [([1] * 10, 10, False), ([1] * 11, 10, True), ({"a": {"b": [1, 2]}}, 4, False), ({"a": {"b": [1, 2]}}, 3, True),
     ({"a": "," * 1000}, 5, False), ([[]] * 6, 5, True), ("text" * 100, 1, False), ([], 0, False)],
)  # fmt: skip
def test_values_are_counted_at_any_depth_and_commas_in_texts_are_none(value: object, most: int, want: bool) -> None:
    assert sizes.has_more_values(value, orjson.dumps(value), most) is want


def test_no_client_in_the_process_gets_beyond_the_limit() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            cluster.registry.state.limits = LIMITS
            client, before = cluster.client, cluster.store.revision
            with pytest.raises(StatusError, match=r"limits\.object_bytes") as caught:
                await client.create(CONFIG_MAPS, make("large", 120_000), "default")
            assert caught.value.code == 413
            applied = client.apply_atomically([Create(CONFIG_MAPS, make("large", 120_000))], field_manager="plan")
            assert applied.refusal is not None
            assert applied.refusal.error.code == 413
            assert cluster.store.revision == before
            await client.create(CONFIG_MAPS, make("small", 60_000), "default")
            patch = {"data": {"l": "y" * 60_000}}
            with pytest.raises(StatusError, match="request is too large"):
                await client.patch(CONFIG_MAPS, "small", PatchType.MERGE, patch, "default")
            refused = client.apply_atomically([Patch(CONFIG_MAPS, "default", "small", patch)], field_manager="plan")
            assert refused.refusal is not None
            assert (await client.get(CONFIG_MAPS, "small", "default"))["data"].keys() == {"k"}

    run_virtual(main())


def test_what_is_larger_already_may_shrink_stay_and_be_deleted() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            client = cluster.client
            old = make("old", 300_000, finalizers=["example.com/wait"])
            await client.create(CONFIG_MAPS, old, "default")
            cluster.registry.state.limits = LIMITS
            with pytest.raises(StatusError, match="request is too large"):
                await client.patch(CONFIG_MAPS, "old", PatchType.MERGE, {"data": {"l": "more"}}, "default")
            shorter = {"data": {"k": "x" * 200_000}}
            assert await client.patch(CONFIG_MAPS, "old", PatchType.MERGE, shorter, "default")
            assert "deletionTimestamp" in (await client.delete(CONFIG_MAPS, "old", "default"))["metadata"]
            await client.patch(CONFIG_MAPS, "old", PatchType.MERGE, {"metadata": {"finalizers": None}}, "default")
            with pytest.raises(StatusError, match="not found"):
                await client.get(CONFIG_MAPS, "old", "default")

    run_virtual(main())
