"""Which runtime a name stands for."""

from __future__ import annotations

import pytest

from trainmaster.api.meta import GVR
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, NAMESPACES, TRAINING_RUNTIMES
from trainmaster.cli import exits
from trainmaster.cli.launch.submission import get_runtime
from trainmaster.client.contract import Client
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


async def _create(client: Client, gvr: GVR, kind: str, namespace: str = "") -> None:
    job = {
        "name": "node",
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}}},
    }
    runtime = {"apiVersion": gvr.api_version, "kind": kind, "metadata": {"name": "ours"}}
    runtime["spec"] = {"template": {"spec": {"replicatedJobs": [job]}}}
    await client.create(gvr, runtime, namespace)


def test_the_runtime_of_the_namespace_comes_before_the_one_of_the_cluster() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            client: Client = cluster.client
            for name in ("team", "other"):
                await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            with pytest.raises(exits.Failure, match="there is no runtime 'ours'"):
                await get_runtime(client, "ours", "team")
            await _create(client, CLUSTER_TRAINING_RUNTIMES, "ClusterTrainingRuntime")
            assert (await get_runtime(client, "ours", "team"))["kind"] == "ClusterTrainingRuntime"
            await _create(client, TRAINING_RUNTIMES, "TrainingRuntime", "team")
            assert (await get_runtime(client, "ours", "team"))["kind"] == "TrainingRuntime"
            assert (await get_runtime(client, "ours", "other"))["kind"] == "ClusterTrainingRuntime"

    run_virtual(main())
