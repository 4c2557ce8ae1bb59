"""What admission says about JobSets, compared with the recorded answers of the real manager."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.api.kindsets.jobset_cases import CREATED, UPDATED, Object, make_jobset, make_replicated
from tools.record_jobset_refusals import mask
from trainmaster.api.kindsets.jobset_v1alpha2 import JOB_SET
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import PatchType
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

RECORDED: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("jobset_refusals.json").read_text())

STRICTER = {
    # Names of Jobs count from zero; upstream lets a negative number in and makes nothing of it.
    "JW-07 negative replicas": [
        "spec.replicatedJobs[0].replicas: Invalid value: -1: must be greater than or equal to 0"
    ],
}


def run(test: Any) -> Any:
    async def main() -> Any:
        async with running_cluster() as cluster:
            return await test(cluster)

    return run_virtual(main())


def list_causes(error: StatusError) -> list[str]:
    """Each once, as kubectl prints them."""
    causes = (error.details or {}).get("causes") or ()
    return list(dict.fromkeys(mask(f"{cause['field']}: {cause['message']}") for cause in causes))


async def create(cluster: Cluster, body: Object) -> list[str]:
    try:
        await cluster.client.create(JOB_SETS, deepcopy(body), "default")
    except StatusError as error:
        assert (error.code, error.reason) == (422, "Invalid")
        return list_causes(error)
    return []


def test_every_case_was_recorded() -> None:
    assert set(RECORDED["created"]) == set(CREATED)
    assert set(RECORDED["updated"]) == set(UPDATED)


@pytest.mark.parametrize("name", CREATED)
def test_creating_is_answered_as_upstream_does(name: str) -> None:
    async def test(cluster: Cluster) -> None:
        want = STRICTER.get(name, RECORDED["created"][name])
        assert await create(cluster, CREATED[name]) == want

    run(test)


@pytest.mark.parametrize("name", STRICTER)
def test_each_stricter_answer_still_differs(name: str) -> None:
    assert RECORDED["created"][name] != STRICTER[name]


@pytest.mark.parametrize("name", UPDATED)
def test_updating_is_answered_as_upstream_does(name: str) -> None:
    async def test(cluster: Cluster) -> None:
        body, change = UPDATED[name]
        assert await create(cluster, body) == []
        new = deepcopy(await cluster.client.get(JOB_SETS, "js", "default"))
        change(new)
        found: list[str] = []
        try:
            await cluster.client.update(JOB_SETS, new, "default")
        except StatusError as error:
            found = list_causes(error)
        assert found == RECORDED["updated"][name]

    run(test)


async def create_and_get(cluster: Cluster, body: Object) -> Object:
    assert await create(cluster, body) == []
    return await cluster.client.get(JOB_SETS, "js", "default")


async def update(cluster: Cluster, patch: Object) -> list[str]:
    try:
        await cluster.client.patch(JOB_SETS, "js", PatchType.MERGE, patch, "default")
    except StatusError as error:
        return list_causes(error)
    return []


def test_jw_01_completion_mode_is_indexed_unless_said_otherwise() -> None:
    async def test(cluster: Cluster) -> None:
        body = make_jobset("a")
        body["spec"]["replicatedJobs"].append(make_replicated("b", job={"completionMode": "NonIndexed"}))
        made = await create_and_get(cluster, body)
        modes = [job["template"]["spec"]["completionMode"] for job in made["spec"]["replicatedJobs"]]
        assert modes == ["Indexed", "NonIndexed"]

    run(test)


def test_jw_02_and_03_and_06_dns_is_on_pods_restart_on_failure_and_all_must_succeed() -> None:
    async def test(cluster: Cluster) -> None:
        made = await create_and_get(cluster, make_jobset())
        assert made["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
        assert made["spec"]["successPolicy"] == {"operator": "All"}
        assert made["spec"]["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
        job = made["spec"]["replicatedJobs"][0]
        assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
        assert job["groupName"] == "default"

    run(test)


def test_jw_10_an_empty_failure_policy_recreates() -> None:
    async def test(cluster: Cluster) -> None:
        made = await create_and_get(cluster, make_jobset(failurePolicy={}))
        assert made["spec"]["failurePolicy"] == {"restartStrategy": "Recreate"}

    run(test)


def test_rules_without_a_name_are_named_by_their_index() -> None:
    async def test(cluster: Cluster) -> None:
        rules = [{"action": "FailJobSet", "name": "mine"}, {"action": "RestartJobSet"}]
        made = await create_and_get(cluster, make_jobset(failurePolicy={"rules": rules}))
        assert [rule["name"] for rule in made["spec"]["failurePolicy"]["rules"]] == ["mine", "failurePolicyRule1"]

    run(test)


def test_jw_14_claims_go_with_the_jobset_unless_said_otherwise_and_have_no_namespace_of_their_own() -> None:
    async def test(cluster: Cluster) -> None:
        template = {"metadata": {"name": "data"}, "spec": {}}
        made = await create_and_get(cluster, make_jobset(volumeClaimPolicies=[{"templates": [template]}]))
        assert made["spec"]["volumeClaimPolicies"][0]["retentionPolicy"] == {"whenDeleted": "Delete"}
        template["metadata"]["namespace"] = "other"
        other = make_jobset(name="other", volumeClaimPolicies=[{"templates": [template]}])
        text = "namespace cannot be set for VolumeClaimPolicies templates"
        assert [cause for cause in await create(cluster, other) if text in cause] != []
        many = make_jobset(name="many", volumeClaimPolicies=[{"templates": []}] * 51)
        assert [cause for cause in await create(cluster, many) if "must have at most 50 items" in cause] != []

    run(test)


def test_a_rule_may_restart_one_job_which_upstream_hides_behind_a_gate() -> None:
    async def test(cluster: Cluster) -> None:
        rules = [{"action": "RestartJob"}, {"action": "RestartJobAndIgnoreMaxRestarts"}]
        assert await create(cluster, make_jobset(failurePolicy={"rules": rules})) == []
        body = make_jobset(name="many", failurePolicy={"rules": rules})
        body["spec"]["replicatedJobs"][0]["replicas"] = 1025
        text = "JobSet cannot have a failure policy rule with RestartJob or RestartJobAndIgnoreMaxRestarts action and a"
        assert await create(cluster, body) == [
            f"<nil>: Internal error: {text} replicated job with replicas > 1024",
        ]

    run(test)


def test_a_job_that_depends_on_itself_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        body = make_jobset("a", "b")
        body["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "b", "status": "Ready"}]
        want = ["<nil>: Internal error: replicatedJob: b cannot depend on replicatedJob: b"]
        assert await create(cluster, body) == want

    run(test)


def test_a_coordinator_that_does_not_exist_is_refused_on_update_too() -> None:
    async def test(cluster: Cluster) -> None:
        await create_and_get(cluster, make_jobset())
        found = await update(cluster, {"spec": {"coordinator": {"replicatedJob": "nobody"}}})
        assert found == ["<nil>: Internal error: coordinator replicatedJob nobody does not exist"]

    run(test)


def test_the_product_of_a_generated_name_is_checked_as_generated() -> None:
    async def test(cluster: Cluster) -> None:
        body = make_jobset()
        body["metadata"] = {"generateName": "x" * 50, "namespace": "default"}
        assert [cause for cause in await create(cluster, body) if "pod names generated" in cause] != []

    run(test)


def test_a_pattern_that_is_none_is_let_in_with_a_warning() -> None:
    policy = {"rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["a", "("]}]}
    texts = JOB_SET.warnings(make_jobset(failurePolicy=policy), None)
    want = "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[1] never matches: missing ): ("
    assert list(texts) == [want]


def test_an_action_that_clusters_hide_behind_a_gate_is_let_in_with_a_warning() -> None:
    texts = JOB_SET.warnings(make_jobset(failurePolicy={"rules": [{"action": "RestartJob"}]}), None)
    want = "spec.failurePolicy.rules[0].action RestartJob: clusters refuse it unless the feature gate RestartJob of"
    assert [text.startswith(want) for text in texts] == [True]


def test_the_example_of_the_page_is_let_in() -> None:
    page = Path(__file__).parents[4] / "docs" / "jobset.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None

    async def test(cluster: Cluster) -> None:
        assert await create(cluster, yaml.safe_load(found[1])) == []

    run(test)
