"""Checklist H: the official Python client, unmodified. Typed calls, custom objects, patches, watches, YAML files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, utils, watch
from kubernetes.client.exceptions import ApiException

from tests.support.clients import Target, connect
from tests.wire.conftest import MANIFESTS

pytestmark = pytest.mark.wire

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"


@pytest.fixture
def api(target: Target) -> Iterator[client.ApiClient]:
    with connect(target) as connected:
        yield connected


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.fixture
def custom(api: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api)


def configmap(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"set": "w"}), data=data)


def runtime(name: str, nodes: int = 1) -> dict[str, Any]:
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = {"spec": {"containers": [{"name": "node", "image": "example.invalid/train:1"}]}}
    job = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": pod}}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TrainingRuntime",
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


# ---- typed calls ----------------------------------------------------------------


def test_typed_objects_are_created_read_replaced_and_deleted(core: client.CoreV1Api, namespace: str) -> None:
    created = core.create_namespaced_config_map(namespace, configmap("a", color="red"))
    assert created.metadata.uid and created.metadata.creation_timestamp.tzinfo
    read = core.read_namespaced_config_map("a", namespace)
    assert read.data == {"color": "red"}
    read.data = {"color": "blue"}
    replaced = core.replace_namespaced_config_map("a", namespace, read)
    assert int(replaced.metadata.resource_version) > int(created.metadata.resource_version)
    listed = core.list_namespaced_config_map(namespace, label_selector="set=w", limit=10)
    assert [item.metadata.name for item in listed.items] == ["a"]
    core.delete_namespaced_config_map("a", namespace)
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("a", namespace)
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")


def test_a_stale_replace_and_a_second_create_are_conflicts(core: client.CoreV1Api, namespace: str) -> None:
    old = core.create_namespaced_config_map(namespace, configmap("a"))
    core.patch_namespaced_config_map("a", namespace, {"data": {"x": "1"}})
    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_config_map("a", namespace, old)
    with pytest.raises(ApiException) as exists:
        core.create_namespaced_config_map(namespace, configmap("a"))
    assert (conflict.value.status, exists.value.status) == (409, 409)
    assert '"reason":"Conflict"' in conflict.value.body
    assert '"reason":"AlreadyExists"' in exists.value.body


def test_lists_are_read_in_pages(core: client.CoreV1Api, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, configmap(f"p{number}"))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, label_selector="set=w", limit=2, _continue=token or None)
        assert len(page.items) <= 2
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"p{number}" for number in range(5)]


def test_typed_pods_and_jobs_survive_the_models(api: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    container = client.V1Container(
        name="main",
        image="example.invalid/x:1",
        env=[client.V1EnvVar(name="A", value="1")],
        resources=client.V1ResourceRequirements(limits={"cpu": "1"}),
    )
    spec = client.V1PodSpec(containers=[container], restart_policy="Never", scheduler_name="nobody")
    pod = core.create_namespaced_pod(namespace, client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=spec))
    assert (pod.status.phase, pod.spec.containers[0].env[0].value) == ("Pending", "1")
    running = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": "", "state": {"running": {}}}
        ],
    }
    core.patch_namespaced_pod_status("p", namespace, {"status": running})
    (found,) = core.list_namespaced_pod(namespace, field_selector="status.phase=Running").items
    assert found.status.container_statuses[0].ready is True
    batch = client.BatchV1Api(api)
    job = client.V1JobSpec(suspend=True, template=client.V1PodTemplateSpec(spec=spec))
    made = batch.create_namespaced_job(namespace, client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=job))
    assert made.spec.selector.match_labels["batch.kubernetes.io/controller-uid"] == made.metadata.uid
    core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    assert core.list_namespaced_pod(namespace).items == []


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param([{"op": "replace", "path": "/data/x", "value": "2"}], {"x": "2", "y": "1"}, id="json"),
        pytest.param({"data": {"x": None, "z": "3"}}, {"y": "1", "z": "3"}, id="strategic"),
    ],
)
def test_patches_follow_the_type_of_their_body(
    core: client.CoreV1Api, namespace: str, body: Any, want: dict[str, str]
) -> None:
    core.create_namespaced_config_map(namespace, configmap("a", x="1", y="1"))
    assert core.patch_namespaced_config_map("a", namespace, body).data == want


def test_server_side_apply_of_a_typed_call(core: client.CoreV1Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    apply = functools.partial(
        core.patch_namespaced_config_map, "a", namespace, _content_type="application/apply-patch+yaml"
    )
    assert apply(body, field_manager="one").data == {"x": "1"}
    with pytest.raises(ApiException) as conflict:
        apply({**body, "data": {"x": "2"}}, field_manager="two")
    assert conflict.value.status == 409
    assert 'conflict with \\"one\\": .data.x' in conflict.value.body
    assert apply({**body, "data": {"x": "2"}}, field_manager="two", force=True).data == {"x": "2"}


def test_dry_runs_and_delete_options_arrive(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, configmap("a"), dry_run="All")
    made = core.create_namespaced_config_map(namespace, configmap("a"))
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    with pytest.raises(ApiException) as refused:
        core.delete_namespaced_config_map("a", namespace, body=wrong)
    assert refused.value.status == 409
    right = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=made.metadata.uid))
    core.delete_namespaced_config_map("a", namespace, body=right)
    assert core.list_namespaced_config_map(namespace, label_selector="set=w").items == []


def test_events_of_the_new_group_have_an_event_time(
    api: client.ApiClient, core: client.CoreV1Api, namespace: str
) -> None:
    about = client.V1ObjectReference(kind="ConfigMap", name="a", namespace=namespace, api_version="v1")
    core.create_namespaced_event(
        namespace,
        client.CoreV1Event(
            metadata=client.V1ObjectMeta(name="e"),
            involved_object=about,
            reason="Done",
            message="it is done",
            type="Normal",
            # Without a fraction the client would write a form that Kubernetes does not read.
            event_time=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            reporting_component="wire-test",
            reporting_instance="one",
            action="Testing",
        ),
    )
    found = next(
        item for item in client.EventsV1Api(api).list_namespaced_event(namespace).items if item.metadata.name == "e"
    )
    assert (found.regarding.name, found.note, found.reporting_controller) == ("a", "it is done", "wire-test")
    assert found.event_time == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_reviews_answer_who_we_are_and_what_we_may(api: client.ApiClient, namespace: str) -> None:
    who = client.AuthenticationV1Api(api).create_self_subject_review(client.V1SelfSubjectReview())
    assert "system:masters" in who.status.user_info.groups
    attributes = client.V1ResourceAttributes(namespace=namespace, verb="create", group=GROUP, resource="trainjobs")
    review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed is True


def test_the_server_says_its_version_and_groups(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")
    assert client.CoreApi(api).get_api_versions().versions == ["v1"]
    assert GROUP in {group.name for group in client.ApisApi(api).get_api_versions().groups}


# ---- custom objects --------------------------------------------------------------


def test_custom_objects_are_created_patched_and_deleted(custom: client.CustomObjectsApi, namespace: str) -> None:
    place = (GROUP, VERSION, namespace, "trainingruntimes")
    made = custom.create_namespaced_custom_object(*place, runtime("r"))
    assert made["metadata"]["generation"] == 1
    patched = custom.patch_namespaced_custom_object(*place, "r", {"spec": {"mlPolicy": {"numNodes": 4}}})
    assert (patched["spec"]["mlPolicy"]["numNodes"], patched["metadata"]["generation"]) == (4, 2)
    patched["spec"]["mlPolicy"]["numNodes"] = 5
    custom.replace_namespaced_custom_object(*place, "r", patched)
    listed = custom.list_namespaced_custom_object(*place)
    assert [(item["kind"], item["spec"]["mlPolicy"]["numNodes"]) for item in listed["items"]] == [
        ("TrainingRuntime", 5)
    ]
    everywhere = custom.list_cluster_custom_object(GROUP, VERSION, "trainingruntimes")
    assert (namespace, "r") in {(i["metadata"]["namespace"], i["metadata"]["name"]) for i in everywhere["items"]}
    custom.delete_namespaced_custom_object(*place, "r")
    with pytest.raises(ApiException) as gone:
        custom.get_namespaced_custom_object(*place, "r")
    assert gone.value.status == 404


def test_the_status_of_a_custom_object_is_apart(custom: client.CustomObjectsApi, namespace: str) -> None:
    custom.create_namespaced_custom_object(GROUP, VERSION, namespace, "trainingruntimes", runtime("r"))
    job = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TrainJob",
        "metadata": {"name": "j"},
        "spec": {
            "managedBy": "kueue.x-k8s.io/multikueue",
            "runtimeRef": {"name": "r", "kind": "TrainingRuntime"},
            "suspend": True,
        },
        "status": {"conditions": []},
    }
    place = (GROUP, VERSION, namespace, "trainjobs")
    assert "status" not in custom.create_namespaced_custom_object(*place, job)
    condition = {"type": "Complete", "status": "True", "reason": "R", "message": "m"}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    custom.patch_namespaced_custom_object_status(*place, "j", {"status": {"conditions": [condition]}})
    read = custom.get_namespaced_custom_object_status(*place, "j")
    assert read["status"]["conditions"][0]["type"] == "Complete"
    assert read["metadata"]["generation"] == 1


# ---- watches ------------------------------------------------------------------------


def test_a_typed_watch_sees_what_is_there_and_what_comes(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, configmap("a"))
    seen = []
    stream = watch.Watch()
    for event in stream.stream(core.list_namespaced_config_map, namespace, label_selector="set=w", timeout_seconds=30):
        seen.append((event["type"], event["object"].metadata.name))
        if seen == [("ADDED", "a")]:
            core.patch_namespaced_config_map("a", namespace, {"data": {"x": "1"}})
        elif seen[-1][0] == "MODIFIED":
            core.delete_namespaced_config_map("a", namespace)
        elif seen[-1][0] == "DELETED":
            stream.stop()
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_custom_watch_sees_dictionaries(custom: client.CustomObjectsApi, namespace: str) -> None:
    place = (GROUP, VERSION, namespace, "trainingruntimes")
    custom.create_namespaced_custom_object(*place, runtime("r"))
    stream = watch.Watch()
    event = next(iter(stream.stream(custom.list_namespaced_custom_object, *place, timeout_seconds=10)))
    stream.stop()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "r")


def test_a_watch_ends_at_its_time_limit(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, configmap("a"))
    events = watch.Watch().stream(core.list_namespaced_config_map, namespace, label_selector="set=w", timeout_seconds=1)
    assert [event["type"] for event in events] == ["ADDED"]


def test_bookmarks_reach_the_user(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, configmap("a"))
    stream, seen = watch.Watch(), []
    for event in stream.stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector="set=w",
        allow_watch_bookmarks=True,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        timeout_seconds=10,
    ):
        seen.append(event["type"])
        if event["type"] == "BOOKMARK":
            stream.stop()
    assert seen == ["ADDED", "BOOKMARK"]


def ended_by_the_server(list_function: Callable[..., Any], seconds: int) -> Callable[..., Any]:
    """A list call whose watches the server ends soon, without the Watch object knowing."""

    @functools.wraps(list_function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return list_function(*args, timeout_seconds=seconds, **kwargs)

    return call


def test_a_watch_resumes_where_it_was_when_the_server_ends_it(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, configmap("a"))
    calls: list[str | None] = []
    short = ended_by_the_server(core.list_namespaced_config_map, 1)

    @functools.wraps(short)
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs.get("resource_version"))
        if len(calls) == 2:  # what changes between two watches must not be lost
            core.create_namespaced_config_map(namespace, configmap("b"))
        return short(*args, **kwargs)

    stream, seen = watch.Watch(), []
    for event in stream.stream(counted, namespace, label_selector="set=w"):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            stream.stop()
    assert seen == [("ADDED", "a"), ("ADDED", "b")]
    assert calls[0] is None and calls[1] is not None


# ---- files ------------------------------------------------------------------------


def test_create_from_yaml_creates_what_files_hold(
    api: client.ApiClient, core: client.CoreV1Api, namespace: str, tmp_path: Path
) -> None:
    utils.create_from_yaml(api, str(MANIFESTS / "two.yaml"), namespace=namespace)
    names = {item.metadata.name for item in core.list_namespaced_config_map(namespace).items}
    assert {"one", "two"} <= names
    with pytest.raises(utils.FailToCreateError, match="AlreadyExists"):
        utils.create_from_yaml(api, str(MANIFESTS / "two.yaml"), namespace=namespace)
    (tmp_path / "job.yaml").write_text((MANIFESTS / "job.yaml").read_text())
    (tmp_path / "service.yaml").write_text((MANIFESTS / "service.yaml").read_text())
    utils.create_from_directory(api, str(tmp_path), namespace=namespace)
    assert core.read_namespaced_service("web", namespace).spec.cluster_ip == "None"
