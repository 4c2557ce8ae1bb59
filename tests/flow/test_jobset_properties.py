"""The JobSet controller under every fault: crash after every write, views of the past, lost and reordered visits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.flow.properties import RUNTIMES, Driver, Faults, Outcome, Scenario, play
from tests.flow.suite import ReconcilerSuite
from tests.unit.controllers.jobset.stage import make_jobset, make_replicated
from trainmaster.api.labels import JOB_RESTART_ATTEMPT, REPLICATED_JOB_NAME, RESTART_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS, SERVICES, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.controllers.jobset import ttl

pytestmark = pytest.mark.flow

Change = Callable[[Driver], Any]


def submit(*replicated: Object, **spec: Any) -> Change:
    async def change(driver: Driver) -> None:
        for one in replicated:
            one["template"]["spec"].setdefault("backoffLimit", 0)
        await driver.cluster.client.create(JOB_SETS, make_jobset(*replicated, **spec), "default")

    return change


def edit(**spec: Any) -> Change:
    async def change(driver: Driver) -> None:
        await driver.cluster.client.patch(JOB_SETS, "js", PatchType.MERGE, {"spec": spec}, "default")

    return change


async def delete_the_service(driver: Driver) -> None:
    await driver.cluster.client.delete(SERVICES, "js", "default", DeleteOptions())


async def fail_b(driver: Driver) -> None:
    """After all has started, so that every run has seen it start."""
    pod = next(pod for pod in driver.cluster.view.list(PODS) if is_of(pod, "b"))
    patch = {"status": {"phase": "Failed", "conditions": []}}
    await driver.cluster.client.patch(
        PODS, pod["metadata"]["name"], PatchType.MERGE, patch, "default", subresource="status"
    )


async def submit_train_job_with_the_ttl_trap(driver: Driver) -> None:
    """A TTL inside the runtime's template: upstream runs such a job again and again."""
    client = driver.cluster.client
    ttl = {"spec": {"template": {"spec": {"ttlSecondsAfterFinished": 0}}}}
    await client.patch(RUNTIMES[0], "torch-distributed", PatchType.MERGE, ttl)
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["x"], "image": "i"}}
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    job = {**kind, "metadata": {"name": "js", "namespace": "default"}, "spec": spec}
    await client.create(TRAIN_JOBS, job, "default")


def depends(name: str, other: str, status: str) -> Object:
    return make_replicated(name, dependsOn=[{"name": other, "status": status}])


def get_attempt(pod: Object, key: str = RESTART_ATTEMPT) -> int:
    return int(pod["metadata"]["labels"][key])


def is_of(pod: Object, name: str) -> bool:
    return bool(pod["metadata"]["labels"][REPLICATED_JOB_NAME] == name)


def fail_first(pod: Object) -> int | None:
    """The second ReplicatedJob fails in the first attempt while the first hangs."""
    if get_attempt(pod) > 0:
        return 0
    return 1 if is_of(pod, "b") else None


def fail_alone_first(pod: Object) -> int | None:
    return 1 if is_of(pod, "b") and get_attempt(pod, JOB_RESTART_ATTEMPT) == 0 else 0


def select_node(name: str) -> Object:
    replicated = make_replicated(name)
    replicated["template"]["spec"]["backoffLimit"] = 0
    replicated["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"nowhere": "yes"}
    return replicated


def mount(name: str) -> Object:
    replicated = make_replicated(name)
    container = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return replicated


CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
}
RESTART_ONE = {"maxRestarts": 1, "rules": [{"name": "one", "action": "RestartJob"}]}
FAIL = {
    "maxRestarts": 1,
    "rules": [{"name": "no", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}],
}
BLOCKING = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
A, B = make_replicated("a"), make_replicated("b", pods=2)

SCENARIOS = (
    Scenario("a gang with several jobs recovers", [submit(A, B, failurePolicy={"maxRestarts": 1})], fail_first),
    Scenario(
        "a gang pauses before its second restart",
        [submit(A, failurePolicy={"maxRestarts": 2})],
        lambda pod: int(get_attempt(pod) < 2),
    ),
    Scenario("a gang recovers after all are gone", [submit(A, B, failurePolicy=BLOCKING)], fail_first),
    Scenario("one job recovers alone", [submit(A, make_replicated("b"), failurePolicy=RESTART_ONE)], fail_alone_first),
    Scenario("a rule ends it", [submit(A, make_replicated("b"), failurePolicy=FAIL)], fail_first),
    Scenario("jobs wait for others", [submit(A, depends("b", "a", "Complete"), depends("c", "b", "Ready"))]),
    Scenario(
        "jobs start in order, also after a restart",
        [submit(A, B, startupPolicy={"startupPolicyOrder": "InOrder"}, failurePolicy={"maxRestarts": 1}), fail_b],
        lambda pod: None if get_attempt(pod) == 0 else 0,
    ),
    Scenario(
        "any job is enough and the others go",
        [submit(A, B, successPolicy={"operator": "Any"})],
        lambda pod: 0 if is_of(pod, "a") else None,
        free=(PODS,),
    ),
    Scenario(
        "suspended, changed, resumed", [submit(A, suspend=True), edit(suspend=False, replicatedJobs=[select_node("a")])]
    ),
    Scenario(
        "running, suspended, changed, resumed",
        [submit(A), edit(suspend=True), edit(replicatedJobs=[select_node("a")]), edit(suspend=False)],
        lambda pod: None,
    ),
    Scenario("a deadline for what has ended", [submit(A, ttlSecondsAfterFinished=5)]),
    Scenario(
        "claims and a coordinator",
        [submit(mount("a"), coordinator={"replicatedJob": "a"}, volumeClaimPolicies=[{"templates": [CLAIM]}])],
    ),
    Scenario("the Service is deleted by hand", [submit(A), delete_the_service], lambda pod: None),
    Scenario("the TTL trap of a runtime", [submit_train_job_with_the_ttl_trap]),
)


class TestProperties(ReconcilerSuite):
    scenarios = SCENARIOS


COVERAGE = TestProperties.coverage
play_plainly = TestProperties.play_plainly


def test_every_place_where_the_jobset_controller_writes_was_hit_by_a_crash() -> None:
    """Runs last in this file."""
    sites = {site for site in COVERAGE.get_sites("none") if site.startswith("jobset:")}
    assert sites == {
        "jobset: create jobs",
        "jobset: create persistentvolumeclaims",
        "jobset: create services",
        "jobset: delete jobs",
        "jobset: delete jobsets",
        "jobset: patch jobs",
        "jobset: patch jobsets",
        "jobset: patch jobsets/status",
    }
    assert sites <= COVERAGE.get_sites("crash")


def get_terminal(outcome: Outcome) -> str:
    return str(outcome.state["jobsets"][0]["status"]["terminalState"])


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("a gang with several jobs recovers", "Completed"),
        ("a gang recovers after all are gone", "Completed"),
        ("one job recovers alone", "Completed"),
        ("a rule ends it", "Failed"),
        ("jobs wait for others", "Completed"),
        ("jobs start in order, also after a restart", "Completed"),
        ("any job is enough and the others go", "Completed"),
    ],
)
def test_the_scenarios_mean_what_they_say(name: str, want: str) -> None:
    scenario = next(one for one in SCENARIOS if one.name == name)
    assert get_terminal(play_plainly(scenario)) == want


def test_the_ttl_trap_leaves_a_complete_trainjob_and_nothing_that_runs() -> None:
    outcome = play_plainly(SCENARIOS[-1])
    assert outcome.state["trainjobs"][0]["status"]["conditions"][0]["type"] == "Complete"
    assert (outcome.state["jobsets"], outcome.state["jobs"], outcome.state["pods"]) == ([], [], [])


def count_runs(seeds: int) -> set[int]:
    return {play(SCENARIOS[-1], Faults(seed=seed), COVERAGE).ran for seed in range(1, seeds + 1)}


def test_the_ttl_trap_runs_its_pod_once_whatever_is_lost() -> None:
    assert count_runs(60) == {1}


def test_without_waiting_for_the_trainjob_the_trap_would_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug, to show that the test above sees it."""
    monkeypatch.setattr(ttl, "_is_noted_by_owner", lambda view, jobset: True)
    assert max(count_runs(60)) > 1
