"""Retention under every fault: crash after every write, views of the past, lost and reordered visits."""

from __future__ import annotations

import pytest

from tests.flow.properties import Driver, Scenario
from tests.flow.suite import ReconcilerSuite
from tests.flow.test_trainjob_properties import edit, submit
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.client.contract import PatchType

pytestmark = pytest.mark.flow


async def keep_none(driver: Driver) -> None:
    meta = {"name": "trainmaster-policy", "namespace": "kubeflow-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"successfulJobsHistoryLimit": "0"}}
    await driver.cluster.client.create(CONFIG_MAPS, body, "kubeflow-system")


async def give_the_runtime_a_ttl(driver: Driver) -> None:
    patch = {"spec": {"ttlSecondsAfterFinished": 30}}
    await driver.cluster.client.patch(CLUSTER_TRAINING_RUNTIMES, "torch-distributed", PatchType.MERGE, patch)


SCENARIOS = (
    Scenario("it goes after its time with all that it owns", [submit(ttlSecondsAfterFinished=60)]),
    Scenario("it goes at once", [submit(ttlSecondsAfterFinished=0)]),
    Scenario("it goes after it failed", [submit(ttlSecondsAfterFinished=5)], lambda pod: 1),
    Scenario("the runtime says so later", [submit(), give_the_runtime_a_ttl]),
    Scenario("the same name again", [submit(ttlSecondsAfterFinished=60), submit()]),
    Scenario("the namespace keeps none", [submit(), keep_none]),
    Scenario("without a time it stays", [submit(), edit(labels={"a": "b"})]),
)


class TestProperties(ReconcilerSuite):
    scenarios = SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS[:4], ids=lambda scenario: scenario.name)
def test_nothing_is_left_of_a_job_whose_time_is_over(scenario: Scenario) -> None:
    state = TestProperties.play_plainly(scenario).state
    assert [state[gvr.plural] for gvr in (TRAIN_JOBS, JOB_SETS, JOBS, PODS)] == [[], [], [], []]
