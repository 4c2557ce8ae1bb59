"""The ConfigMap with a job's code: whose it is, and what becomes of it after a crash between two writes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from tests.unit.jobs.compose.test_compose import load, make_request
from trainmaster.api.labels import CODE_OF, OWNERLESS
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli import exits
from trainmaster.cli.launch.manifests import SHAPE
from trainmaster.cli.launch.submission import submit
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs import code_maps
from trainmaster.jobs.compose.carried import carry
from trainmaster.jobs.compose.trainjob import ComposedJob, compose
from trainmaster.jobs.control import repeat
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import Clock
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def compose_job(name: str, suffix: str = "x") -> ComposedJob:
    code = carry(b"packed", f"{name}-code-{suffix}", name, "default", {})
    return compose(make_request(name=name, code=code), load("torch-distributed"), SHAPE)


async def list_maps(client: Client) -> dict[str, list[str]]:
    """Name -> names of its owners."""
    items = (await client.list(CONFIG_MAPS, "default", ListOptions(label_selector=CODE_OF))).items
    for item in items:
        is_ownerless = OWNERLESS in item["metadata"]["labels"]
        assert is_ownerless is not bool(item["metadata"].get("ownerReferences"))
    return {
        item["metadata"]["name"]: sorted(owner["name"] for owner in item["metadata"].get("ownerReferences", ()))
        for item in items
    }


def on_a_server(work: Any) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, load("torch-distributed"))
            await work(cluster)

    run_virtual(main())


class Failing:
    """The client of a command that dies before its n-th write of that kind, or whose write is refused."""

    def __init__(self, client: Client, gvr: object, verb: str, error: BaseException) -> None:
        self._client, self._gvr, self._verb, self._error = client, gvr, verb, error

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name != self._verb:
            return method

        def call(gvr: object, *arguments: Any, **options: Any) -> Coroutine[Any, Any, Any]:
            if gvr == self._gvr:
                raise self._error
            result: Coroutine[Any, Any, Any] = method(gvr, *arguments, **options)
            return result

        return call


async def crash(client: Client, clock: Clock, composed: ComposedJob, gvr: object, verb: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        await submit(Failing(client, gvr, verb, KeyboardInterrupt()), composed, clock)


def test_a_job_owns_its_code_and_takes_it_along() -> None:
    async def work(cluster: Cluster) -> None:
        _, notes = await submit(cluster.client, compose_job("one"), cluster.clock)
        assert notes == []
        assert await list_maps(cluster.client) == {"one-code-x": ["one"]}
        await cluster.client.delete(TRAIN_JOBS, "one", "default")
        await cluster.settle()
        assert await list_maps(cluster.client) == {}

    on_a_server(work)


def test_after_a_crash_before_the_job_the_next_run_deletes_the_code_after_a_day() -> None:
    async def work(cluster: Cluster) -> None:
        await crash(cluster.client, cluster.clock, compose_job("one"), TRAIN_JOBS, "create")
        await submit(cluster.client, compose_job("two"), cluster.clock)
        assert await list_maps(cluster.client) == {"one-code-x": [], "two-code-x": ["two"]}, "its job may come yet"
        await cluster.clock.sleep(code_maps.KEPT_SECONDS + 1)
        await submit(cluster.client, compose_job("three"), cluster.clock)
        assert await list_maps(cluster.client) == {"two-code-x": ["two"], "three-code-x": ["three"]}

    on_a_server(work)


def test_after_a_crash_before_the_owner_is_set_the_next_run_sets_it() -> None:
    async def work(cluster: Cluster) -> None:
        await crash(cluster.client, cluster.clock, compose_job("one"), CONFIG_MAPS, "patch")
        assert await list_maps(cluster.client) == {"one-code-x": []}
        await submit(cluster.client, compose_job("two"), cluster.clock)
        assert await list_maps(cluster.client) == {"one-code-x": ["one"], "two-code-x": ["two"]}

    on_a_server(work)


def test_another_job_of_that_name_does_not_get_it() -> None:
    async def work(cluster: Cluster) -> None:
        await crash(cluster.client, cluster.clock, compose_job("one"), TRAIN_JOBS, "create")
        await submit(cluster.client, compose_job("one", "y"), cluster.clock)
        assert await list_maps(cluster.client) == {"one-code-x": [], "one-code-y": ["one"]}

    on_a_server(work)


def test_the_code_of_a_job_that_is_refused_is_deleted() -> None:
    async def work(cluster: Cluster) -> None:
        await submit(cluster.client, compose_job("one"), cluster.clock)
        with pytest.raises(exits.Failure, match="there is a job 'one' already"):
            await submit(cluster.client, compose_job("one", "y"), cluster.clock)
        assert await list_maps(cluster.client) == {"one-code-x": ["one"]}
        lost = Failing(cluster.client, TRAIN_JOBS, "create", StatusError(504, "Timeout", "lost"))
        with pytest.raises(exits.Failure, match="lost"):
            await submit(lost, compose_job("two"), cluster.clock)
        assert "two-code-x" in await list_maps(cluster.client), "the job may exist"

    on_a_server(work)


@pytest.mark.parametrize(
    ("verb", "want"),
    [
        ("create", "the code could not be sent, as a ConfigMap of the job: no, not you; use --no-code"),
        ("patch", "stays when the job is deleted (no, not you): `kubectl delete configmap one-code-x -n default`"),
    ],
)
def test_a_missing_right_is_told(verb: str, want: str) -> None:
    async def work(cluster: Cluster) -> None:
        failing: Any = Failing(cluster.client, CONFIG_MAPS, verb, StatusError(403, "Forbidden", "no, not you"))
        if verb == "create":
            with pytest.raises(exits.Failure) as told:
                await submit(failing, compose_job("one"), cluster.clock)
            assert told.value.code == exits.RUN_CODE
            assert want in str(told.value)
            assert (await cluster.client.list(TRAIN_JOBS, "default")).items == []
        else:
            (note,) = (await submit(failing, compose_job("one"), cluster.clock))[1]
            assert want in note

    on_a_server(work)


def test_a_job_that_is_repeated_shares_the_code_of_the_first_one() -> None:
    async def work(cluster: Cluster) -> None:
        made, _ = await submit(cluster.client, compose_job("one"), cluster.clock)
        await repeat(cluster.client, TrainJob(made), ["one-2"])
        assert await list_maps(cluster.client) == {"one-code-x": ["one", "one-2"]}
        await delete(cluster, "one")
        assert await list_maps(cluster.client) == {"one-code-x": ["one-2"]}
        await delete(cluster, "one-2")
        with pytest.raises(NotFound, match="the code of one-3 was deleted with its ConfigMap one-code-x"):
            await repeat(cluster.client, TrainJob(made), ["one-3"])

    async def delete(cluster: Cluster, name: str) -> Object:
        answer = await cluster.client.delete(TRAIN_JOBS, name, "default")
        await cluster.settle()
        return answer

    on_a_server(work)
