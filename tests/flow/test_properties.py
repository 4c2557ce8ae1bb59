"""Every reconciler, under every fault, ends where it ends without faults, and then is silent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.properties import Driver, Scenario
from tests.flow.suite import ReconcilerSuite
from trainmaster.api.labels import COMPLETION_INDEX, RESTART_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, PatchType

pytestmark = pytest.mark.flow

TRAIN_JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2, "command": ["x"], "image": "i"}},
}


async def submit(driver: Driver) -> None:
    await driver.cluster.client.create(TRAIN_JOBS, TRAIN_JOB, "default")


async def submit_with_a_deadline(driver: Driver) -> None:
    """A field that this version refuses."""
    job = {**TRAIN_JOB, "spec": {**TRAIN_JOB["spec"], "activeDeadlineSeconds": 5}}
    await driver.cluster.client.create(TRAIN_JOBS, job, "default")


def set_suspend(value: bool) -> Any:
    async def change(driver: Driver) -> None:
        await driver.cluster.client.patch(TRAIN_JOBS, "a", PatchType.MERGE, {"spec": {"suspend": value}}, "default")

    return change


async def delete(driver: Driver) -> None:
    await driver.cluster.client.delete(TRAIN_JOBS, "a", "default", DeleteOptions())


async def delete_a_pod(driver: Driver) -> None:
    pod = driver.cluster.view.list(PODS)[0]
    await driver.cluster.client.delete(PODS, pod["metadata"]["name"], "default", DeleteOptions())


async def delete_the_job(driver: Driver) -> None:
    options = DeleteOptions(propagation="Background")
    await driver.cluster.client.delete(JOBS, "a-node-0", "default", options)


def fail_twice(pod: Object) -> int | None:
    """Rank 1 fails in the first two attempts while rank 0 hangs."""
    if int(pod["metadata"]["labels"][RESTART_ATTEMPT]) >= 2:
        return 0
    return 1 if pod["metadata"]["annotations"][COMPLETION_INDEX] == "1" else None


SCENARIOS = (
    Scenario("a job completes", [submit]),
    Scenario("a job recovers from two failures", [submit], fail_twice),
    Scenario("a job fails for good", [submit], lambda pod: 1, free=(JOBS, PODS)),
    Scenario("a job is suspended and resumed", [submit, set_suspend(True), set_suspend(False)], lambda pod: None),
    Scenario("a job is deleted while it runs", [submit, delete], lambda pod: None),
    Scenario("a Pod is deleted by hand", [submit, delete_a_pod], lambda pod: None),
    Scenario("a Job is deleted by hand", [submit, delete_the_job], lambda pod: None),
    Scenario("a job asks for what is not carried out", [submit_with_a_deadline]),
)


class TestProperties(ReconcilerSuite):
    scenarios = SCENARIOS
    seeds = range(1, 11)


COVERAGE = TestProperties.coverage


def test_every_place_that_writes_was_hit_by_every_fault() -> None:
    """Runs last in this file. A write that no crash has struck is a write that nobody has tested."""
    print(COVERAGE.render())
    sites = COVERAGE.get_sites("none")
    assert len(sites) >= 14
    assert COVERAGE.get_sites("crash") == sites
