"""Checklist H: the DynamicClient of the official Python client, which learns every kind from discovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, ResourceNotFoundError

from tests.support.clients import Target, connect

pytestmark = pytest.mark.wire


@pytest.fixture
def dynamic(target: Target, tmp_path: Path) -> Iterator[DynamicClient]:
    with connect(target) as api:
        yield DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))


def body(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"set": "w"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_kinds_are_found_with_and_without_a_group(dynamic: DynamicClient) -> None:
    assert dynamic.resources.get(api_version="v1", kind="ConfigMap").name == "configmaps"
    trainjobs = dynamic.resources.get(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob")
    assert (trainjobs.name, trainjobs.namespaced) == ("trainjobs", True)
    assert dynamic.resources.get(kind="ClusterTrainingRuntime").namespaced is False
    with pytest.raises(ResourceNotFoundError):
        dynamic.resources.get(api_version="v1", kind="Nosuch")


def test_objects_are_created_read_patched_and_deleted(dynamic: DynamicClient, namespace: str) -> None:
    configmaps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    made = configmaps.create(body=body("a", x="1"), namespace=namespace)
    assert made.metadata.uid
    patched = configmaps.patch(
        body={"metadata": {"name": "a"}, "data": {"y": "2"}},
        namespace=namespace,
        content_type="application/merge-patch+json",
    )
    assert patched.data.to_dict() == {"x": "1", "y": "2"}
    assert [item.metadata.name for item in configmaps.get(namespace=namespace, label_selector="set=w").items] == ["a"]
    configmaps.delete(name="a", namespace=namespace)
    with pytest.raises(NotFoundError):
        configmaps.get(name="a", namespace=namespace)


def test_server_side_apply_creates_and_refuses_to_take_over(dynamic: DynamicClient, namespace: str) -> None:
    configmaps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    first = configmaps.server_side_apply(body=body("a", x="1"), namespace=namespace, field_manager="one")
    assert first.metadata.managedFields[0].manager == "one"
    with pytest.raises(ConflictError):
        configmaps.server_side_apply(body=body("a", x="2"), namespace=namespace, field_manager="two")
    forced = configmaps.server_side_apply(
        body=body("a", x="2"), namespace=namespace, field_manager="two", force_conflicts=True
    )
    assert forced.data.x == "2"


def test_a_watch_sees_what_is_there_and_what_comes(dynamic: DynamicClient, namespace: str) -> None:
    configmaps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    configmaps.create(body=body("a"), namespace=namespace)
    seen = []
    for event in configmaps.watch(namespace=namespace, label_selector="set=w", timeout=30):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            break
        configmaps.create(body=body("b"), namespace=namespace)
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


def test_the_status_subresource_is_offered(dynamic: DynamicClient) -> None:
    trainjobs = dynamic.resources.get(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob")
    assert "status" in trainjobs.subresources
