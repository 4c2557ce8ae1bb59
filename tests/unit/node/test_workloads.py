"""Whom a Pod works for is verified up to the TrainJob: kind, name, uid and namespace of every owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.chain import Chain, make_chain
from trainmaster.api import labels
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import NAMESPACES, TRAIN_JOBS
from trainmaster.api.status import not_found
from trainmaster.api.workloads import Workload, build_workload, read_gang
from trainmaster.client.contract import Client
from trainmaster.node.workloads import Workloads
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Counting:
    """Counts what is read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.reads: list[str] = []
        self.gone: GVR | None = None

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        self.reads.append(f"{gvr.plural}/{name}")
        if gvr == self.gone:
            raise not_found(gvr, name)
        return await self._client.get(gvr, name, namespace, subresource=subresource)


def run(test: Callable[[Client, Chain], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(cluster.client, await make_chain(cluster.client))

    run_virtual(main())


def build_pod(metadata: Object, name: str = "p", namespace: str = "default") -> Object:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", **metadata}, "spec": {}}


ALONE = Workload("Pod", "default", "p", "uid-of-p")


def test_a_member_works_for_the_topmost_job() -> None:
    async def test(client: Client, chain: Chain) -> None:
        found = await Workloads(client).resolve(build_pod(chain.metadata()))
        assert found == Workload("TrainJob", "default", "j", chain.uid, chain.jobset["metadata"]["uid"], "j")
        assert found.trainjob == chain.uid

    run(test)


SIGNED = {"annotations": {labels.SUBMITTER: labels.OWNER}}


@pytest.mark.parametrize("kind", ["TrainJob", "PyTorchJob"])
def test_the_owner_submitted_what_the_server_has_marked(kind: str) -> None:
    assert build_workload(build_pod(SIGNED), kind, None).is_owners
    assert not build_workload(build_pod({}), kind, None).is_owners


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
def test_on_other_kinds_anybody_can_write_the_mark(kind: str) -> None:
    assert not build_workload(build_pod(SIGNED), kind, None).is_owners
    above = Workload("TrainJob", "default", "j", "uid")
    assert not build_workload(build_pod(SIGNED), kind, above).is_owners


def test_a_large_gang_costs_one_look_up_for_each_owner() -> None:
    async def test(client: Client, chain: Chain) -> None:
        counting: Any = Counting(client)
        workloads = Workloads(counting)
        for number in range(100):
            await workloads.resolve(build_pod(chain.metadata(), f"p{number}"))
        assert counting.reads == ["jobs/j-node-0", "jobsets/j", "trainjobs/j"]

    run(test)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("uid", "00000000-0000-4000-8000-000000000000"),
        ("name", "another"),
        ("controller", False),
        ("controller", None),
        ("kind", "TrainJob"),
        ("kind", "ConfigMap"),
        ("apiVersion", "example.com/v1"),
    ],
)
def test_a_reference_that_is_not_right_in_everything_counts_for_nothing(field: str, value: Any) -> None:
    async def test(client: Client, chain: Chain) -> None:
        metadata = chain.metadata()
        metadata["ownerReferences"][0][field] = value
        assert await Workloads(client).resolve(build_pod(metadata)) == ALONE

    run(test)


def test_labels_alone_count_for_nothing() -> None:
    async def test(client: Client, chain: Chain) -> None:
        assert await Workloads(client).resolve(build_pod({"labels": chain.labels})) == ALONE

    run(test)


def test_an_owner_in_another_namespace_counts_for_nothing_even_when_it_is_known() -> None:
    async def test(client: Client, chain: Chain) -> None:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bob"}})
        workloads = Workloads(client)
        await workloads.resolve(build_pod(chain.metadata()))
        found = await workloads.resolve(build_pod(chain.metadata(), namespace="bob"))
        assert (found.kind, found.trainjob, found.gang) == ("Pod", "", "")

    run(test)


def test_a_trainjob_that_is_gone_has_no_members() -> None:
    async def test(client: Client, chain: Chain) -> None:
        counting: Any = Counting(client)
        counting.gone = TRAIN_JOBS
        found = await Workloads(counting).resolve(build_pod(chain.metadata()))
        assert (found.kind, found.trainjob, found.gang) == ("JobSet", "", chain.jobset["metadata"]["uid"])

    run(test)


def test_gangs_of_two_namespaces_are_never_one() -> None:
    marks = {"labels": {labels.JOBSET_UID: "u"}}
    assert read_gang(build_pod(marks)) == "default/u"
    assert read_gang(build_pod(marks, namespace="bob")) == "bob/u"
    assert read_gang(build_pod({})) == ""
