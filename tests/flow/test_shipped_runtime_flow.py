"""A shipped runtime that somebody edited, over a restart of the server."""

from __future__ import annotations

import pytest

from tests.flow.plant import ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES as RUNTIMES
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.controllers.install import install_runtimes
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def test_an_edited_shipped_runtime_survives_a_restart_of_the_server_and_counts() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with running_cluster(store=store) as cluster:
            await install_runtimes(cluster.client)
            edit = {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 10}}}}}
            await cluster.client.patch(RUNTIMES, "torch-distributed", PatchType.MERGE, edit)
        async with running_plant(ScriptedNode(lambda pod, run: 1), store=store) as plant:
            await plant.apply((TRAIN_JOBS, make_trainjob()))
            trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
            assert trainjob["status"]["conditions"][0]["reason"] == "ReachedMaxRestarts"
            assert (await plant.list_all(JOB_SETS))[0]["status"]["restarts"] == 10

    run_virtual(main(), limit=86_400)
