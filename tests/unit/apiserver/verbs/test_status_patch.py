"""A merge patch of the status is checked like any other write, although only the status is decoded again."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.status import Conflict, Invalid, StatusError
from trainmaster.client.contract import PatchType
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "labels": {"x": "y"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


async def patch(cluster: Cluster, status: Any, **head: str) -> Object:
    body = {"metadata": head, "status": status} if head else {"status": status}
    return await cluster.client.patch(PODS, "a", PatchType.MERGE, body, "default", subresource="status")


def test_a_clean_status_is_stored_and_the_rest_stays() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            made = await cluster.client.create(PODS, POD, "default")
            new = await patch(cluster, {"phase": "Running"}, uid=made["metadata"]["uid"])
            assert new["status"] == {**made["status"], "phase": "Running"}
            assert (new["spec"], new["metadata"]["labels"]) == (made["spec"], {"x": "y"})
            again = await patch(cluster, {"phase": "Running"})
            assert again["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]

    run_virtual(main())


@pytest.mark.parametrize(
    ("status", "after"),
    [({"conditions": []}, None), ({"nonsense": 1}, None), ({"phase": None}, None)],
    ids=["an empty list", "an unknown field", "a field that goes"],
)
def test_what_decoding_drops_is_dropped(status: Object, after: object) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(PODS, POD, "default")
            new = await patch(cluster, status)
            assert new["status"].get(next(iter(status))) is after

    run_virtual(main())


@pytest.mark.parametrize("status", [{"phase": 1}, "text", {"conditions": {}}])
def test_a_status_of_the_wrong_type_is_refused(status: Any) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(PODS, POD, "default")
            with pytest.raises(StatusError):
                await patch(cluster, status)

    run_virtual(main())


def test_locks_hold() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(PODS, POD, "default")
            with pytest.raises(Conflict):
                await patch(cluster, {"phase": "Running"}, resourceVersion="1")
            with pytest.raises(Invalid, match="field is immutable"):
                await patch(cluster, {"phase": "Running"}, uid="another")

    run_virtual(main())


def test_other_fields_of_a_status_patch_are_left_alone() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j", "namespace": "default"},
                "spec": {"template": {"spec": {**POD["spec"], "restartPolicy": "Never"}}},
            }
            await cluster.client.create(JOBS, job, "default")
            body = {"spec": {"parallelism": 7}, "status": {"active": 1}}
            new = await cluster.client.patch(JOBS, "j", PatchType.MERGE, body, "default", subresource="status")
            assert (new["spec"]["parallelism"], new["status"]["active"]) == (1, 1)

    run_virtual(main())
