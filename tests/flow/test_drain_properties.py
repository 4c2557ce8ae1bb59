"""A drain under every fault: crash after every write, views of the past, lost and reordered visits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.flow.properties import Driver, Scenario
from tests.flow.suite import ReconcilerSuite
from tests.flow.test_trainjob_properties import edit, hang, submit
from trainmaster.api.labels import DRAIN_MARKS
from trainmaster.api.meta import Object
from trainmaster.api.resources import NODES, PODS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.jobs.draining import end_drain, start_drain

pytestmark = pytest.mark.flow

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


async def drain(driver: Driver) -> None:
    await start_drain(driver.cluster.client, MOMENT, "ann")


async def undrain(driver: Driver) -> None:
    await end_drain(driver.cluster.client)


async def uncordon(driver: Driver) -> None:
    await driver.cluster.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": None}})


async def shut_down(driver: Driver) -> None:
    await start_drain(driver.cluster.client, MOMENT, "", until_start=True)


SCENARIOS = (
    Scenario("it stops", [submit(), drain], hang),
    Scenario("it comes back", [submit(), drain, undrain], hang),
    Scenario("kubectl uncordon ends it too", [submit(), drain, uncordon], hang),
    Scenario("a person resumes it meanwhile", [submit(), drain, edit(suspend=False)], hang),
    Scenario(
        "a person resumes it meanwhile, and the drain ends", [submit(), drain, edit(suspend=False), undrain], hang
    ),
    Scenario("a person had suspended it", [submit(suspend=True), drain, undrain], hang),
    Scenario("it is submitted meanwhile", [drain, submit(), undrain], hang),
    Scenario("it is drained twice", [submit(), drain, undrain, drain], hang),
    Scenario("the machine shuts down", [submit(), shut_down, undrain], hang),
)


class TestProperties(ReconcilerSuite):
    scenarios = SCENARIOS


def find_job(state: dict[str, list[Object]]) -> Object:
    (job,) = state[TRAIN_JOBS.plural]
    return job


@pytest.mark.parametrize(
    ("scenario", "suspended", "bound"),
    [
        (0, True, 0),
        (1, False, 1),
        (2, False, 1),
        (3, False, 0),
        (4, False, 1),
        (5, True, 0),
        (6, False, 1),
        (7, True, 0),
    ],
)
def test_what_a_scenario_comes_to(scenario: int, suspended: bool, bound: int) -> None:
    state = TestProperties.play_plainly(SCENARIOS[scenario]).state
    assert bool(find_job(state)["spec"].get("suspend")) is suspended
    assert sum(bool(pod["spec"].get("nodeName")) for pod in state[PODS.plural]) == bound


def test_a_job_that_a_person_suspended_bears_no_mark() -> None:
    job = find_job(TestProperties.play_plainly(SCENARIOS[5]).state)
    assert DRAIN_MARKS.isdisjoint(job["metadata"].get("annotations") or {})
