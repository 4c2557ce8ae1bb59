"""What admission says about Jobs, compared with the recorded answers of a real API server."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.kindsets.job_cases import CREATED, STATUSES, UPDATED, Object, make_indexed, make_job, with_status
from tools.record_job_refusals import mask
from trainmaster.api.jobs.indexes import check_indexes, format_indexes, parse_indexes
from trainmaster.api.resources import JOBS
from trainmaster.api.status import StatusError
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

RECORDED: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("job_refusals.json").read_text())


def run(test: Any) -> Any:
    async def main() -> Any:
        async with running_cluster() as cluster:
            return await test(cluster)

    return run_virtual(main())


def list_causes(error: StatusError) -> list[str]:
    """Each once, as kubectl prints them."""
    assert (error.code, error.reason) == (422, "Invalid")
    causes = (error.details or {}).get("causes") or ()
    return list(dict.fromkeys(mask(f"{cause['field']}: {cause['message']}") for cause in causes))


async def create(cluster: Cluster, body: Object) -> list[str]:
    try:
        await cluster.client.create(JOBS, deepcopy(body), "default")
    except StatusError as error:
        return list_causes(error)
    return []


async def update(cluster: Cluster, body: Object, subresource: str = "") -> list[str]:
    body = deepcopy(body)
    body["metadata"].pop("resourceVersion", None)
    try:
        await cluster.client.update(JOBS, body, "default", subresource=subresource)
    except StatusError as error:
        return list_causes(error)
    return []


def test_every_case_was_recorded() -> None:
    assert set(RECORDED["created"]) == set(CREATED)
    assert set(RECORDED["updated"]) == set(UPDATED)
    assert set(RECORDED["statuses"]) == set(STATUSES)


@pytest.mark.parametrize("name", CREATED)
def test_creating_is_answered_as_upstream_does(name: str) -> None:
    assert run(lambda cluster: create(cluster, CREATED[name])) == RECORDED["created"][name]


@pytest.mark.parametrize("name", UPDATED)
def test_ki_11_updating_is_answered_as_upstream_does(name: str) -> None:
    async def test(cluster: Cluster) -> list[str]:
        body, change = UPDATED[name]
        assert await create(cluster, body) == []
        new = deepcopy(await cluster.client.get(JOBS, "j", "default"))
        change(new)
        return await update(cluster, new)

    assert run(test) == RECORDED["updated"][name]


@pytest.mark.parametrize("name", STATUSES)
def test_ke_14_a_status_is_answered_as_upstream_does(name: str) -> None:
    async def test(cluster: Cluster) -> list[str]:
        body, (before, after) = STATUSES[name]
        assert await create(cluster, body) == []
        standing = await cluster.client.get(JOBS, "j", "default")
        if before:
            assert await update(cluster, with_status(standing, before), "status") == []
        return await update(cluster, with_status(standing, after), "status")

    assert run(test) == RECORDED["statuses"][name]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="not started"),
        pytest.param({"startTime": "2026-11-15T12:00:00Z"}, id="started, then suspended"),
    ],
)
def test_ke_18_resources_may_change_while_suspended(status: Object) -> None:
    async def test(cluster: Cluster) -> list[str]:
        assert await create(cluster, make_indexed(suspend=True)) == []
        standing = await cluster.client.get(JOBS, "j", "default")
        condition = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
        assert await update(cluster, with_status(standing, {**status, "conditions": [condition]}), "status") == []
        new = deepcopy(await cluster.client.get(JOBS, "j", "default"))
        new["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
        new["spec"]["suspend"] = False
        return await update(cluster, new)

    assert run(test) == []


def test_ke_18_resources_may_not_change_while_pods_run() -> None:
    async def test(cluster: Cluster) -> list[str]:
        assert await create(cluster, make_indexed(suspend=True)) == []
        standing = await cluster.client.get(JOBS, "j", "default")
        assert await update(cluster, with_status(standing, {"active": 1}), "status") == []
        new = deepcopy(await cluster.client.get(JOBS, "j", "default"))
        new["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
        return await update(cluster, new)

    assert run(test) == ["spec.template: Invalid value: ...: field is immutable"]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, (1, 1, 6, "TerminatingOrFailed"), id="nothing given"),
        pytest.param({"parallelism": 3}, (3, None, 6, "TerminatingOrFailed"), id="a work queue"),
        pytest.param({"completions": 3}, (1, 3, 6, "TerminatingOrFailed"), id="completions"),
        pytest.param(
            {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1},
            (1, 2, 2147483647, "TerminatingOrFailed"),
            id="limits per index",
        ),
        pytest.param({"podFailurePolicy": {"rules": []}}, (1, 1, 6, "Failed"), id="a failure policy"),
    ],
)
def test_what_is_not_given_is_filled_in(spec: Object, want: tuple[Any, ...]) -> None:
    async def test(cluster: Cluster) -> tuple[Any, ...]:
        assert await create(cluster, make_job(**spec)) == []
        made = (await cluster.client.get(JOBS, "j", "default"))["spec"]
        names = ("parallelism", "completions", "backoffLimit", "podReplacementPolicy")
        return tuple(made.get(name) for name in names)

    assert run(test) == want


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param("", [], id="none"),
        pytest.param("0,1", [0, 1], id="two stay a pair"),
        pytest.param("0-2", [0, 1, 2], id="three become an interval"),
        pytest.param("0,2-4,7", [0, 2, 3, 4, 7], id="mixed"),
    ],
)
def test_indexes_are_written_as_upstream_does(text: str, indexes: list[int]) -> None:
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == indexes
    assert check_indexes(text, 8) == (len(indexes), "")


def test_indexes_beyond_the_last_are_left_out() -> None:
    assert parse_indexes("0,2-9,11", 4) == [0, 2, 3]
    assert parse_indexes("nonsense,1") == [1]
