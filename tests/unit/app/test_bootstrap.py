"""What every installation starts with."""

from __future__ import annotations

import pytest

from trainmaster.api.meta import GVR
from trainmaster.api.resources import CONFIG_MAPS, PODS
from trainmaster.app.bootstrap import ensure_built_ins
from trainmaster.client.contract import PatchType
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

PRIORITY_CLASSES = GVR("scheduling.k8s.io", "v1", "priorityclasses")


def test_the_priority_classes_of_the_system_are_there_and_pods_may_name_them() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            assert ensure_built_ins(cluster.registry) > 2
            assert ensure_built_ins(cluster.registry) == 0, "what exists stays as it is"
            found = (await cluster.client.list(PRIORITY_CLASSES)).items
            want = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
            assert {item["metadata"]["name"]: item["value"] for item in found} == want
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p"},
                "spec": {"priorityClassName": "system-node-critical", "containers": [{"name": "a", "image": "i"}]},
            }
            made = await cluster.client.create(PODS, pod, "default")
            assert made["spec"]["priority"] == 2_000_001_000

    run_virtual(main())


def test_the_version_that_sdks_read_is_the_releases_whatever_stood_there() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            place = (CONFIG_MAPS, "kubeflow-trainer-public")
            for value in (None, "v0.0.1"):
                if value:
                    change = {"data": {"kubeflow_trainer_version": value, "of-others": "kept"}}
                    await cluster.client.patch(*place, PatchType.MERGE, change, "kubeflow-system")
                ensure_built_ins(cluster.registry)
                found = await cluster.client.get(*place, "kubeflow-system")
                assert found["data"]["kubeflow_trainer_version"] == "v2.3.0"
            assert found["data"]["of-others"] == "kept"

    run_virtual(main())
