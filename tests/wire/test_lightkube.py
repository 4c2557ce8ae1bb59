"""Checklist K: lightkube, unmodified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.generic_resource import get_generic_resource, load_in_cluster_generic_resources
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import CascadeType, PatchType

from tests.support.clients import Raw, Target
from tests.wire.conftest import MANIFESTS

pytestmark = pytest.mark.wire


@pytest.fixture
def api(target: Target, namespace: str) -> Iterator[Client]:
    config = KubeConfig.from_file(target.kubeconfig)
    client = Client(config=config, namespace=namespace, field_manager="wire")
    yield client
    client._client._client.close()


def configmap(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"set": "w"}), data=data)


def test_objects_are_created_read_replaced_patched_and_deleted(api: Client) -> None:
    api.create(configmap("a", x="1"))
    read = api.get(ConfigMap, "a")
    read.data["x"] = "2"
    assert api.replace(read).data == {"x": "2"}
    assert api.patch(ConfigMap, "a", {"data": {"y": "3"}}).data == {"x": "2", "y": "3"}
    merged = api.patch(ConfigMap, "a", {"data": {"y": None}}, patch_type=PatchType.MERGE)
    assert merged.data == {"x": "2"}
    assert [item.metadata.name for item in api.list(ConfigMap, labels={"set": "w"})] == ["a"]
    api.delete(ConfigMap, "a", cascade=CascadeType.FOREGROUND)
    with pytest.raises(ApiError) as gone:
        api.get(ConfigMap, "a")
    assert gone.value.status.reason == "NotFound"


def test_apply_creates_changes_and_refuses_to_take_over(api: Client, namespace: str) -> None:
    first = configmap("a", x="1")
    first.metadata.namespace = namespace
    api.apply(first)
    first.data = {"y": "2"}
    assert api.apply(first).data == {"y": "2"}
    other = configmap("a", y="3")
    other.metadata.namespace = namespace
    with pytest.raises(ApiError) as conflict:
        api.apply(other, field_manager="other")
    assert conflict.value.status.code == 409
    assert api.apply(other, field_manager="other", force=True).data == {"y": "3"}


def test_the_kinds_of_the_cluster_are_loaded_from_its_definitions(api: Client, namespace: str) -> None:
    load_in_cluster_generic_resources(api)
    runtimes = get_generic_resource("trainer.kubeflow.org/v1alpha1", "TrainingRuntime")
    assert runtimes is not None
    (manifest,) = codecs.load_all_yaml((MANIFESTS / "runtime.yaml").read_text())
    manifest.metadata.namespace = namespace
    api.create(manifest)
    found = api.get(runtimes, "plain")
    assert found["spec"]["mlPolicy"]["numNodes"] == 1
    patched = api.patch(
        runtimes, "plain", {"spec": {"mlPolicy": {"numNodes": 2}}}, patch_type=PatchType.MERGE, namespace=namespace
    )
    assert patched["spec"]["mlPolicy"]["numNodes"] == 2
    jobs: Any = get_generic_resource("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert list(api.list(jobs)) == []
    assert jobs.Status is not None


def test_a_watch_sees_what_is_there_and_what_comes(api: Client) -> None:
    api.create(configmap("a"))
    seen = []
    for kind, item in api.watch(ConfigMap, labels={"set": "w"}, server_timeout=30):
        seen.append((kind, item.metadata.name))
        if len(seen) == 2:
            break
        api.create(configmap("b"))
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


def test_wait_returns_when_the_condition_is_there(api: Client, raw: Raw, namespace: str) -> None:
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.invalid/x:1"}]}
    raw.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, "spec": spec})
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    raw.merge(f"/api/v1/namespaces/{namespace}/pods/p/status", {"status": status})
    found = api.wait(Pod, "p", for_conditions=["Ready"])
    assert found.metadata.name == "p"
    api.delete(Pod, "p", grace_period=0)


def test_a_collection_is_deleted(api: Client) -> None:
    api.create(configmap("a"))
    api.create(configmap("b"))
    api.deletecollection(ConfigMap)
    assert {"a", "b"}.isdisjoint(item.metadata.name for item in api.list(ConfigMap))


def test_the_log_of_a_running_pod_is_followed(api: Client) -> None:
    container = Container(name="main", image="python:3", command=["sh", "-c", "echo one; echo two"])
    pod = Pod(metadata=ObjectMeta(name="r"), spec=PodSpec(containers=[container], restartPolicy="Never"))
    api.create(pod)
    for _, seen in api.watch(Pod, fields={"metadata.name": "r"}, server_timeout=60):
        if seen.status and seen.status.phase == "Succeeded":
            break
    assert list(api.log("r", follow=True)) == ["one\n", "two\n"]
    assert list(api.log("r", tail_lines=1)) == ["two\n"]
