"""The Job controller under every fault: it ends where it ends without faults, counts nothing twice, and then is silent.

Jobs of their own, without a JobSet above them: every mode and policy. The driver and the faults are those of
`tests/flow/properties.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.properties import Driver, Scenario
from tests.flow.suite import ReconcilerSuite
from trainmaster.api.labels import COMPLETION_INDEX, POD_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.contract import DeleteOptions, PatchType

pytestmark = pytest.mark.flow


def submit(**spec: Any) -> Any:
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}]}
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": pod}, **spec},
    }

    async def change(driver: Driver) -> None:
        await driver.cluster.client.create(JOBS, job, "default")

    return change


def edit(**spec: Any) -> Any:
    async def change(driver: Driver) -> None:
        await driver.cluster.client.patch(JOBS, "j", PatchType.MERGE, {"spec": spec}, "default")

    return change


def remove_pod(*, grace: int | None) -> Any:
    """The first Pod, in the order of indexes and birth."""

    async def change(driver: Driver) -> None:
        pods = sorted(driver.cluster.view.list(PODS), key=lambda pod: sorted(pod["metadata"]["annotations"].items()))
        options = DeleteOptions(grace_seconds=grace)
        await driver.cluster.client.delete(PODS, pods[0]["metadata"]["name"], "default", options)

    return change


async def delete(driver: Driver) -> None:
    await driver.cluster.client.delete(JOBS, "j", "default", DeleteOptions(propagation="Foreground"))


def get_index(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][COMPLETION_INDEX])


def get_attempt(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][POD_ATTEMPT])


def run_for_ever(pod: Object) -> int | None:
    return None


def fail_at_first(pod: Object) -> int | None:
    return 1 if get_attempt(pod) == 0 else 0


def fail_in_the_first_two(pod: Object) -> int | None:
    return 1 if get_attempt(pod) < 2 else 0


def fail_in_one_index(pod: Object) -> int | None:
    """Index 1 fails while the others hang."""
    return 1 if get_index(pod) == 1 else None


def succeed_in_one_index(pod: Object) -> int | None:
    return 0 if get_index(pod) == 1 else None


NON_INDEXED = {"completionMode": "NonIndexed"}
PER_INDEX = {"backoffLimitPerIndex": 1, "completions": 3, "parallelism": 3}


def make_rule(action: str) -> Object:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [1]}}
    return {"podFailurePolicy": {"rules": [rule]}}


SCENARIOS = (
    Scenario("indexes complete", [submit()]),
    Scenario("a queue of work completes", [submit(**NON_INDEXED, completions=5)]),
    # How many Pods there are at the first success depends on how fast the world is.
    Scenario("the first is enough", [submit(**NON_INDEXED, completions=None, parallelism=3)], free=(JOBS, PODS)),
    Scenario("failed Pods are replaced", [submit()], fail_at_first),
    Scenario("failed Pods without an index are replaced", [submit(**NON_INDEXED)], fail_in_the_first_two),
    Scenario("too many failures", [submit(backoffLimit=0)], fail_in_one_index),
    Scenario("each index on its own", [submit(**PER_INDEX)], lambda pod: 1 if get_index(pod) else 0),
    Scenario("too many failed indexes", [submit(**PER_INDEX, maxFailedIndexes=0)], fail_in_one_index),
    Scenario("a rule ends the Job", [submit(**make_rule("FailJob"))], fail_in_one_index),
    Scenario("a rule ignores failures", [submit(**make_rule("Ignore"), backoffLimit=0)], fail_at_first),
    Scenario(
        "some indexes are enough", [submit(successPolicy={"rules": [{"succeededCount": 1}]})], succeed_in_one_index
    ),
    Scenario("suspended and resumed", [submit(), edit(suspend=True), edit(suspend=False)], run_for_ever),
    Scenario("without indexes suspended", [submit(**NON_INDEXED), edit(suspend=True)], run_for_ever),
    Scenario("fewer and more", [submit(), edit(parallelism=1), edit(parallelism=2)], run_for_ever),
    Scenario(
        "elastic", [submit(), edit(parallelism=1, completions=1), edit(parallelism=3, completions=3)], run_for_ever
    ),
    Scenario("a Pod is deleted", [submit(), remove_pod(grace=None)], run_for_ever),
    Scenario("a Pod is removed by force", [submit(), remove_pod(grace=0)], run_for_ever),
    Scenario("Pods are removed by force", [submit(**NON_INDEXED), *[remove_pod(grace=0)] * 2], run_for_ever),
    Scenario("removed by force once too often", [submit(backoffLimit=0), remove_pod(grace=0)], run_for_ever),
    Scenario("replaced after the end", [submit(podReplacementPolicy="Failed"), remove_pod(grace=None)], run_for_ever),
    Scenario("the deadline passes", [submit(activeDeadlineSeconds=60)], run_for_ever),
    Scenario("it goes after its time", [submit(ttlSecondsAfterFinished=60)]),
    Scenario("deleted while it runs", [submit(), delete], run_for_ever),
)


class TestProperties(ReconcilerSuite):
    scenarios = SCENARIOS
    lags = (1, 4)
    seeds = range(1, 4)


COVERAGE = TestProperties.coverage
play_plainly = TestProperties.play_plainly


def test_every_write_of_the_job_controller_was_hit_by_every_fault() -> None:
    """Runs last in this file."""
    print(COVERAGE.render())
    sites = {site for site in COVERAGE.get_sites("none") if site.startswith("job:")}
    assert sites == {"job: create pods", "job: delete pods", "job: delete jobs", "job: patch jobs/status"}
    assert {site for site in COVERAGE.get_sites("crash") if site.startswith("job:")} == sites
    # A TTL is over long after the last change, when every view has caught up.
    assert {site for site in COVERAGE.get_sites("lag") if site.startswith("job:")} == sites - {"job: delete jobs"}


def test_the_counts_are_what_happened() -> None:
    """The scenarios end the same under faults; here is that they end right."""
    want = {
        "a queue of work completes": (5, None),
        "failed Pods are replaced": (2, 2),
        "failed Pods without an index are replaced": (2, 2),
        "too many failures": (None, 2),
        "each index on its own": (1, 4),
        "a rule ignores failures": (2, None),
        "suspended and resumed": (None, None),
        "a Pod is deleted": (None, 1),
        "a Pod is removed by force": (None, 1),
        "Pods are removed by force": (None, 2),
        "removed by force once too often": (None, 2),
        "replaced after the end": (None, 1),
    }
    for scenario in SCENARIOS:
        if scenario.name in want:
            (job,) = play_plainly(scenario).state["jobs"]
            assert (job["status"].get("succeeded"), job["status"].get("failed")) == want[scenario.name], scenario.name
