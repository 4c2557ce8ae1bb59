"""Binding and evicting Pods through their subresources."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.local import SYSTEM
from trainmaster.client.contract import WriteOptions
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def run(test: Callable[[Cluster], Coroutine[Any, Any, None]], **spec: Any) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "a", "image": "i"}], **spec},
            }
            await cluster.client.create(PODS, pod, "default")
            await test(cluster)

    run_virtual(main())


def post(cluster: Cluster, subresource: str, body: Object, *, dry_run: bool = False) -> Object:
    kind = catalogue.build().find(PODS)
    assert kind is not None
    options = WriteOptions(dry_run=dry_run)
    written = cluster.registry.create(Call(SYSTEM), kind, "default", body, options, name="p", subresource=subresource)
    answer: Object = orjson.loads(written.value)
    return answer


def bind(cluster: Cluster, **target: Any) -> Object:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "annotations": {"a": "b"}}}
    return post(cluster, "binding", {**body, "target": target})


def evict(cluster: Cluster, **options: Any) -> Object:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    return post(cluster, "eviction", {**body, "deleteOptions": options})


def test_a_binding_puts_the_pod_on_its_node() -> None:
    async def test(cluster: Cluster) -> None:
        answer = bind(cluster, kind="Node", name="n")
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
        pod = await cluster.client.get(PODS, "p", "default")
        assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == ("n", {"a": "b"})
        scheduled = find_condition(list_conditions(pod), "PodScheduled")
        assert scheduled is not None
        assert scheduled["status"] == "True"

    run(test)


def test_a_pod_is_bound_once() -> None:
    async def test(cluster: Cluster) -> None:
        bind(cluster, name="n")
        with pytest.raises(StatusError) as caught:
            bind(cluster, name="m")
        assert caught.value.code == 409
        assert caught.value.message == (
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"'
        )

    run(test)


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param({"kind": "Node"}, "target.name: Required value", id="no name"),
        pytest.param({"kind": "Pod", "name": "n"}, 'target.kind: Unsupported value: "Pod"', id="no node"),
        pytest.param({"name": "a/b"}, "target.name: Invalid value", id="a path"),
    ],
)
def test_a_binding_needs_a_node(target: Object, want: str) -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(StatusError) as caught:
            bind(cluster, **target)
        assert caught.value.code == 422
        assert want in caught.value.message

    run(test)


def test_a_gated_pod_is_not_bound() -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(StatusError, match=r"has non-empty \.spec\.schedulingGates"):
            bind(cluster, name="n")

    run(test, schedulingGates=[{"name": "example.com/g"}])


def test_an_eviction_deletes_the_pod_and_says_why() -> None:
    async def test(cluster: Cluster) -> None:
        bind(cluster, name="n")
        answer = evict(cluster, gracePeriodSeconds=7)
        assert (answer["status"], answer["code"]) == ("Success", 201)
        pod = await cluster.client.get(PODS, "p", "default")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
        condition = find_condition(list_conditions(pod), "DisruptionTarget")
        assert condition is not None
        facts = (condition["status"], condition["reason"], condition["message"])
        assert facts == ("True", "EvictionByEvictionAPI", "Eviction API: evicting")

    run(test)


def test_an_unscheduled_pod_is_gone_at_once() -> None:
    async def test(cluster: Cluster) -> None:
        evict(cluster)
        with pytest.raises(NotFound):
            await cluster.client.get(PODS, "p", "default")
        with pytest.raises(NotFound):
            evict(cluster)

    run(test)


def test_a_rehearsed_eviction_changes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        before = await cluster.client.get(PODS, "p", "default")
        evict(cluster, dryRun=["All"])
        assert await cluster.client.get(PODS, "p", "default") == before

    run(test)


def test_an_eviction_of_another_uid_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        before = await cluster.client.get(PODS, "p", "default")
        with pytest.raises(StatusError) as caught:
            evict(cluster, preconditions={"uid": "other"})
        assert caught.value.code == 409
        after = await cluster.client.get(PODS, "p", "default")
        assert after == before, "nor does the Pod say that it is going"

    run(test)


def test_names_must_agree() -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(StatusError, match="name in URL does not match name in Eviction object"):
            post(cluster, "eviction", {"kind": "Eviction", "metadata": {"name": "q"}})

    run(test)
