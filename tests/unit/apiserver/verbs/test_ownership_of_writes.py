"""Which fields a write makes its own: what the client sent and defaults, not what the server fills in afterwards."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

CONFIG_MAPS = GVR("", "v1", "configmaps")
JOBS = GVR("batch", "v1", "jobs")
OPTIONS = WriteOptions(field_manager="somebody")


def make_job() -> Object:
    container = {"name": "c", "image": "busybox"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}


def test_nobody_owns_the_labels_and_selector_that_the_server_gives_a_job() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            job = await cluster.client.create(JOBS, make_job(), "default", options=OPTIONS)
            assert "controller-uid" in str(job["spec"]["selector"])
            [entry] = job["metadata"]["managedFields"]
            assert entry["manager"] == "somebody"
            assert "f:backoffLimit" in entry["fieldsV1"]["f:spec"], "defaults belong to the writer"
            assert "f:selector" not in entry["fieldsV1"]["f:spec"]
            assert "controller-uid" not in str(entry["fieldsV1"])

    run_virtual(main())


def test_a_write_that_changes_nothing_later_keeps_times_and_revision() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
            first = await cluster.client.create(CONFIG_MAPS, made, "default", options=OPTIONS)
            await asyncio.sleep(5)
            patch = {"data": {"k": "v"}, "unknown": 1}
            second = await cluster.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, "default", options=OPTIONS)
            assert second == first

    run_virtual(main())
