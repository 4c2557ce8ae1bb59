"""The TrainJob controller under every fault: crash after every write, views of the past, lost and reordered visits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.flow.properties import Driver, Scenario
from tests.flow.suite import ReconcilerSuite
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, PatchType

pytestmark = pytest.mark.flow

Change = Callable[[Driver], Any]


def submit(runtime: str = "torch-distributed", **spec: Any) -> Change:
    async def change(driver: Driver) -> None:
        trainjob = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "tj", "namespace": "default"},
            "spec": {"runtimeRef": {"name": runtime}, **spec},
        }
        await driver.cluster.client.create(TRAIN_JOBS, trainjob, "default")

    return change


def edit(**spec: Any) -> Change:
    async def change(driver: Driver) -> None:
        await driver.cluster.client.patch(TRAIN_JOBS, "tj", PatchType.MERGE, {"spec": spec}, "default")

    return change


def restart(attempt: int) -> Change:
    async def change(driver: Driver) -> None:
        patch = {"metadata": {"annotations": {"trainmaster.dev/restart": str(attempt)}}}
        await driver.cluster.client.patch(TRAIN_JOBS, "tj", PatchType.MERGE, patch, "default")

    return change


def delete(gvr: GVR, name: str) -> Change:
    async def change(driver: Driver) -> None:
        await driver.cluster.client.delete(gvr, name, "default", DeleteOptions("Foreground"))

    return change


async def spoil_the_hostfile(driver: Driver) -> None:
    patch = {"data": {"hostfile": "nobody slots=1\n"}}
    await driver.cluster.client.patch(CONFIG_MAPS, "tj-mpi-hostfile", PatchType.MERGE, patch, "default")


async def end_the_pods(driver: Driver) -> None:
    for pod in driver.cluster.view.list(PODS):
        name = pod["metadata"]["name"]
        patch = {"status": {"phase": "Succeeded", "conditions": []}}
        await driver.cluster.client.patch(PODS, name, PatchType.MERGE, patch, "default", subresource="status")


def select(zone: str) -> list[Object]:
    pod = {"metadata": {"annotations": {"zone": zone}}, "spec": {"tolerations": [{"key": zone, "operator": "Exists"}]}}
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    return [{"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}]


def hang(pod: Object) -> int | None:
    return None


def serve(pod: Object) -> int | None:
    return None if pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "node" else 0


def fail(pod: Object) -> int | None:
    return 3


SCENARIOS = (
    Scenario(
        "an override that changes while suspended is there after the resumption",
        [submit(suspend=True, runtimePatches=select("a")), edit(runtimePatches=select("b")), edit(suspend=False)],
    ),
    Scenario(
        "suspended while running, changed and resumed",
        [submit(), edit(suspend=True), edit(runtimePatches=select("b")), edit(suspend=False), end_the_pods],
        hang,
    ),
    Scenario(
        "an MPI job has its keys and its hosts", [submit("deepspeed-distributed", trainer={"numNodes": 2})], serve
    ),
    Scenario(
        "what belongs to a running job comes back as it was",
        [
            submit("deepspeed-distributed", trainer={"numNodes": 2}),
            delete(CONFIG_MAPS, "tj-runtime-snapshot"),
            spoil_the_hostfile,
            edit(labels={"a": "b"}),
        ],
        hang,
    ),
    Scenario("a deadline ends the job and its Pods", [submit(activeDeadlineSeconds=30)], hang),
    Scenario("a JobSet that somebody deletes is made anew", [submit(), delete(JOB_SETS, "tj"), end_the_pods], hang),
    Scenario("a job that fails says who failed first", [submit()], fail),
    Scenario(
        "asking again restarts again, also while suspended",
        [submit(), restart(1), edit(suspend=True), restart(4), edit(suspend=False), end_the_pods],
        hang,
    ),
    Scenario("a restart that is asked for too late changes nothing", [submit(), end_the_pods, restart(1)], hang),
)


class TestProperties(ReconcilerSuite):
    scenarios = SCENARIOS


COVERAGE = TestProperties.coverage


@pytest.mark.parametrize(
    ("scenario", "want"),
    [
        pytest.param(SCENARIOS[number], want, id=SCENARIOS[number].name)
        for number, want in (
            (0, "Complete"),
            (1, "Complete"),
            (2, "Complete"),
            (4, "Failed"),
            (5, "Complete"),
            (6, "Failed"),
            (7, "Complete"),
            (8, "Complete"),
        )
    ],
)
def test_the_scenarios_mean_what_they_say(scenario: Scenario, want: str) -> None:
    trainjob = TestProperties.play_plainly(scenario).state["trainjobs"][0]
    assert trainjob["status"]["conditions"][-1]["type"] == want
    assert "waiting" not in trainjob["status"]


def test_every_place_where_the_trainjob_controller_writes_was_hit_by_a_crash() -> None:
    """Runs last in this file."""
    sites = {site for site in COVERAGE.get_sites("none") if site.startswith("trainjob:")}
    assert sites == {
        "trainjob: create configmaps",
        "trainjob: create jobsets",
        "trainjob: create secrets",
        "trainjob: delete jobsets",
        "trainjob: patch configmaps",
        "trainjob: patch jobsets",
        "trainjob: patch trainjobs/status",
    }
    assert sites <= COVERAGE.get_sites("crash")
