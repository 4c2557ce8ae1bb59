"""A tenant fills the server with objects, in every way that a token allows, and asks for jobs that are too large."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.attacks.site import Caller, Site, add_tenant, make_caller, unique
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

V1 = "kubeflow.org/v1"
TRAINER = "trainer.kubeflow.org/v1alpha1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def frugal(site: Site) -> Iterator[Caller]:
    """May have 20 objects of each kind and 4 MiB of them, 5 Pods, 3 TrainJobs."""
    flags = ("--objects", "20", "--object-bytes", "4Mi", "--pods", "5", "--jobs", "3")
    caller = add_tenant(site.server, unique("frugal"), *flags)
    yield caller
    caller.close()


@pytest.fixture
def empty(frugal: Caller) -> Iterator[Caller]:
    yield frugal
    for resource in ("configmaps", "secrets", "persistentvolumeclaims", "pods"):
        for item in frugal.kube.get(frugal.path(resource))["items"]:
            name = item["metadata"]["name"]
            if name.startswith(("kube-root", "tenant-token")):
                continue
            if item["metadata"].get("finalizers") and resource == "configmaps":
                patch(frugal, resource, name, {"metadata": {"finalizers": None}})
            frugal.kube.call("DELETE", f"{frugal.path(resource, name)}?gracePeriodSeconds=0")
    for resource in ("trainjobs", "trainingruntimes"):
        for item in frugal.kube.get(frugal.path(resource, group=TRAINER))["items"]:
            frugal.kube.call("DELETE", frugal.path(resource, item["metadata"]["name"], group=TRAINER))


def build_map(name: str, size: int = 10, **metadata: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"x": "x" * size},
    }


def create(caller: Caller, resource: str, body: JSON, group: str = "") -> tuple[int, JSON]:
    code, answer = caller.kube.call("POST", caller.path(resource, group=group), body)
    return code, answer


def patch(caller: Caller, resource: str, name: str, body: JSON, kind: str = MERGE) -> tuple[int, JSON]:
    suffix = "?fieldManager=t&force=true" if kind == APPLY else ""
    code, answer = caller.kube.call("PATCH", caller.path(resource, name) + suffix, body, **{"Content-Type": kind})
    return code, answer


def measure(caller: Caller) -> int:
    """All bytes that the tenant can list: what it has, seen from outside."""
    total = 0
    for resource in ("configmaps", "secrets"):
        total += len(json.dumps(caller.kube.get(caller.path(resource))))
    return total


def test_objects_end_at_their_number_and_the_answer_says_whose_it_is(empty: Caller) -> None:
    codes = []
    for number in range(25):
        code, answer = create(empty, "configmaps", build_map(f"n{number}"))
        codes.append(code)
    assert codes.count(201) == 19  # and the one that every namespace has
    assert set(codes) == {201, 403}
    assert f"`trainmaster tenant set {empty.namespace} --objects 21`" in answer["message"]
    assert "used: configmaps=20" in answer["message"]


def test_a_flood_of_large_objects_ends_at_the_tenants_bytes(site: Site, empty: Caller) -> None:
    """From several connections at a time: check and write are one."""

    def fill(number: int) -> list[int]:
        own = make_caller(site.server, empty.namespace, empty.token)
        try:
            return [create(own, "configmaps", build_map(f"f{number}-{n}", 1_000_000))[0] for n in range(4)]
        finally:
            own.close()

    with ThreadPoolExecutor(5) as pool:
        codes = [code for part in pool.map(fill, range(5)) for code in part]
    assert set(codes) <= {201, 403, 429}
    assert 1 <= codes.count(201) <= 4
    assert measure(empty) < 5 << 20
    code, answer = create(empty, "configmaps", build_map("one-more", 1_000_000))
    assert code in (403, 429)
    if code == 403:
        assert "--object-bytes" in answer["message"] and "trainmaster.dev/object-bytes=" in answer["message"]


@pytest.mark.parametrize("way", ["put", "merge", "apply", "annotation", "managed fields"])
def test_growing_what_exists_is_counted_as_well(empty: Caller, way: str) -> None:
    for number in range(5):
        code, made = create(empty, "configmaps", build_map(f"g{number}"))
        assert code == 201
        big = build_map(f"g{number}", 1_000_000)
        if way == "put":
            empty.kube.call("PUT", empty.path("configmaps", f"g{number}"), big)
        elif way == "merge":
            patch(empty, "configmaps", f"g{number}", {"data": big["data"]})
        elif way == "apply":
            patch(empty, "configmaps", f"g{number}", big, APPLY)
        elif way == "annotation":
            patch(empty, "configmaps", f"g{number}", {"metadata": {"annotations": {"a": "x" * 250_000}}})
        else:
            patch(empty, "configmaps", f"g{number}", {"data": {f"{n:060}": "" for n in range(8000)}}, MERGE)
        assert made["metadata"]["name"] == f"g{number}"
    assert measure(empty) < 5 << 20
    # What is there can still be made smaller, and taken away.
    assert patch(empty, "configmaps", "g0", {"data": {"x": "small"}})[0] == 200
    assert empty.kube.call("DELETE", empty.path("configmaps", "g1"))[0] == 200


def test_what_waits_for_its_finalizers_still_counts(empty: Caller) -> None:
    for number in range(4):
        assert create(empty, "configmaps", build_map(f"k{number}", 950_000, finalizers=["ann.example/never"]))[0] == 201
        empty.kube.call("DELETE", empty.path("configmaps", f"k{number}"))
    assert create(empty, "configmaps", build_map("after", 950_000))[0] == 403
    for number in range(4):
        assert patch(empty, "configmaps", f"k{number}", {"metadata": {"finalizers": None}})[0] == 200
    assert create(empty, "configmaps", build_map("after", 950_000))[0] == 201


def test_dry_runs_and_generated_names_take_and_give_nothing(empty: Caller) -> None:
    path = empty.path("configmaps")
    for _ in range(30):
        assert empty.kube.call("POST", f"{path}?dryRun=All", build_map("dry"))[0] == 201
    body = build_map("")
    body["metadata"] = {"generateName": "made-"}
    codes = [empty.kube.call("POST", path, body)[0] for _ in range(25)]
    assert codes.count(201) == 19


@pytest.mark.parametrize("nodes", [6, 100_000, 2_000_000_000])
def test_a_job_that_the_tenant_could_never_run_is_refused_at_once(empty: Caller, nodes: int) -> None:
    body = build_job(unique("wide"), numNodes=nodes)
    code, answer = create(empty, "trainjobs", body, TRAINER)
    assert code == 403
    assert f"it needs {nodes} Pods, and the tenant may have 5 at a time" in answer["message"]
    assert "tenant set" in answer["message"]


def build_job(name: str, runtime: JSON | None = None, **trainer: Any) -> JSON:
    return {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": runtime or {"name": "plain", "kind": "ClusterTrainingRuntime"},
            "trainer": {"command": ["true"], **trainer},
        },
    }


def test_a_job_whose_environment_would_be_copied_into_every_pod_is_refused(empty: Caller) -> None:
    env = [{"name": f"V{n}", "value": "x" * 30_000} for n in range(20)]
    code, answer = create(empty, "trainjobs", build_job(unique("heavy"), numNodes=5, env=env), TRAINER)
    assert code == 403
    assert "a quarter of the tenant's object bytes" in answer["message"]


@pytest.mark.parametrize("shape", ["replicas", "parallelism", "many jobs", "numNodes"])
def test_a_runtime_does_not_hide_a_job_that_is_too_large(empty: Caller, shape: str) -> None:
    def build(name: str) -> JSON:
        spec: JSON = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "plain", "command": ["true"]}]}
        template: JSON = {"spec": {"template": {"spec": spec}}}
        job: JSON = {"name": name, "template": template}
        if shape == "replicas":
            job["replicas"] = 1_000_000
        if shape == "parallelism":
            template["spec"] |= {"parallelism": 1_000_000, "completions": 1_000_000}
        return job

    jobs = [build(f"j{n}") for n in range(1000 if shape == "many jobs" else 1)]
    runtime: JSON = {
        "apiVersion": TRAINER,
        "kind": "TrainingRuntime",
        "metadata": {"name": unique("wide")},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    if shape == "numNodes":
        runtime["spec"]["mlPolicy"] = {"numNodes": 1_000_000}
    code, answer = create(empty, "trainingruntimes", runtime, TRAINER)
    assert code in (403, 422), answer
    if code == 403:
        assert "the tenant may have 5 at a time" in answer["message"], answer["message"]


def test_jobs_end_at_their_number_also_through_rest(empty: Caller) -> None:
    body = {"user_id": empty.namespace, "namespace": empty.namespace, "framework": "plain", "training_code": "print(1)"}
    codes = [create(empty, "trainjobs", build_job(f"j{n}") | {}, TRAINER)[0] for n in range(4)]
    assert codes == [201, 201, 201, 403]
    code, answer = empty.rest.call("POST", "/api/v1/jobs", body)
    assert code in (403, 422), answer


def test_jobs_of_a_v1_kind_end_at_the_same_number(empty: Caller) -> None:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "plain"}]}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": template}}, "runPolicy": {"suspend": True}}
    codes = []
    for number in range(4):
        body = {"apiVersion": V1, "kind": "PyTorchJob", "metadata": {"name": f"v{number}"}, "spec": spec}
        code, answer = create(empty, "pytorchjobs", body, V1)
        codes.append(code)
    assert codes == [201, 201, 201, 403]
    assert f"`trainmaster tenant set {empty.namespace} --jobs 4`" in answer["message"]


def test_the_tenant_cannot_lift_its_own_limits(empty: Caller) -> None:
    for resource in ("resourcequotas", "limitranges"):
        path = empty.path(resource, "tenant")
        assert empty.kube.call("DELETE", path)[0] == 403
        body = {"spec": {"hard": {"pods": "9999"}}}
        assert empty.kube.call("PATCH", path, body, **{"Content-Type": MERGE})[0] == 403
        assert empty.kube.call("PATCH", f"{path}/status", body, **{"Content-Type": MERGE})[0] == 403
    assert empty.kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": unique("second")}})[0] == 403


def test_its_token_is_still_renewed_when_it_has_filled_all_there_is(site: Site, empty: Caller) -> None:
    for number in range(25):
        create(empty, "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{number}"}})
    other = add_tenant(site.server, unique("full"), "--objects", "10")
    for number in range(12):
        create(other, "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{number}"}})
    issued = json.loads(site.trainmaster("tenant", "rotate", other.namespace, "-o", "json"))
    renewed = make_caller(site.server, other.namespace, issued["token"])
    assert renewed.kube.call("GET", renewed.path("pods"))[0] == 200
    other.close()
    renewed.close()


def test_use_is_shown_against_every_limit(empty: Caller) -> None:
    create(empty, "configmaps", build_map("shown", 100_000))
    deadline = time.monotonic() + 20
    while True:
        code, me = empty.rest.call("GET", "/api/v1/me")
        assert code == 200
        used = {entry["resource"]: (entry["used"], entry["allowed"]) for entry in me["quota"]}
        if used["configmaps"] == ("2", "20") and int(used["trainmaster.dev/object-bytes"][0]) > 100_000:
            break
        assert time.monotonic() < deadline, used
        time.sleep(0.1)
    assert {"pods", "secrets", "count/events", "trainmaster.dev/pids"} <= set(used)
