"""A tenant asks, in every way there is, who else is on this machine and what they do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.site import Caller, Site, unique
from tests.attacks.tenant.test_identity import TRAINER, start_trainjob
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

SECRET = unique("secret-merger")


def wait_for_sentence(caller: Caller, name: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        job: JSON = caller.kube.get(caller.path("trainjobs", name, group=TRAINER))
        waiting = (job.get("status") or {}).get("waiting") or {}
        if waiting.get("reason") == "Queued":
            return str(waiting["message"])
        time.sleep(0.1)
    raise AssertionError(f"{name} does not wait: {job.get('status')}")


@pytest.fixture(scope="module")
def queued(site: Site) -> Iterator[str]:
    """ann's job, which waits for all CPUs while bob's has one of them."""
    node = site.owner.kube.get("/api/v1/nodes/local")
    cpus = node["status"]["allocatable"]["cpu"]
    name = unique("waits")
    one = {"resourcesPerNode": {"requests": {"cpu": "1"}}}
    trainer = {"image": "python:3.11", "command": ["sleep", "600"]}
    start_trainjob(site.bob, SECRET, "", trainer={**trainer, **one})
    wait_for_running(site.bob, SECRET)
    start_trainjob(site.ann, name, "", trainer={**trainer, "resourcesPerNode": {"requests": {"cpu": cpus}}})
    wait_for_sentence(site.ann, name)
    yield name
    site.ann.kube.delete(site.ann.path("trainjobs", name, group=TRAINER))
    site.bob.kube.delete(site.bob.path("trainjobs", SECRET, group=TRAINER))


def wait_for_running(caller: Caller, name: str) -> None:
    deadline = time.monotonic() + 60
    selector = f"labelSelector=jobset.sigs.k8s.io/jobset-name={name}"
    while time.monotonic() < deadline:
        pods = caller.kube.get(f"{caller.path('pods')}?{selector}")["items"]
        if pods and pods[0].get("status", {}).get("phase") == "Running":
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} does not run")


def test_a_job_that_waits_for_a_stranger_does_not_name_it(site: Site, queued: str) -> None:
    sentence = wait_for_sentence(site.ann, queued)
    assert "of another user" in sentence or "of other users" in sentence
    assert SECRET not in sentence and "bob" not in sentence


def test_the_owner_is_told_the_name(site: Site, queued: str) -> None:
    assert f"bob/{SECRET}" in site.trainmaster("explain", queued, "-n", "ann")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/ann/pods",
        "/api/v1/namespaces/ann/events",
        "/apis/events.k8s.io/v1/namespaces/ann/events",
        "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ann/trainjobs",
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ann/jobsets",
        "/apis/batch/v1/namespaces/ann/jobs",
        "/api/v1/namespaces/ann/services",
        "/api/v1/namespaces/ann/resourcequotas",
        "/api/v1/nodes",
        "/api/v1/nodes/local",
        "/api/v1/namespaces",
        "/api/v1/namespaces/bob",
        "/api/v1/pods",
        "/api/v1/events",
        "/api/v1/persistentvolumes",
        "/api/v1/namespaces/kubeflow-system/configmaps",
        "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
        "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
        "/apis/metrics.k8s.io/v1beta1/pods",
        "/apis/metrics.k8s.io/v1beta1/nodes",
        "/apis/metrics.k8s.io/v1beta1/namespaces/ann/pods",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/coordination.k8s.io/v1/leases",
        "/metrics",
        "/version",
    ],
)
def test_no_answer_of_the_kubernetes_api_names_another_tenant_or_its_jobs(site: Site, queued: str, path: str) -> None:
    code, answer = site.ann.kube.call("GET", path)
    text = answer if isinstance(answer, str) else json.dumps(answer)
    assert code in (200, 403, 404), answer
    assert SECRET not in text
    # What was asked for is repeated in a refusal, and nothing else.
    if code == 200:
        assert "bob" not in text


@pytest.mark.parametrize(
    "path",
    ["/jobs", "/jobs/{name}", "/jobs/{name}/explain", "/jobs/{name}/doctor", "/jobs?namespace=bob", "/me", "/metrics",
     "/runtimes", "/runtimes/plain", "/queue", "/nodes", "/nodes/local", "/settings", "/doctor"],
)  # fmt: skip
def test_no_answer_of_the_rest_api_names_another_tenant_or_its_jobs(site: Site, queued: str, path: str) -> None:
    code, answer = site.ann.rest.call("GET", f"/api/v1{path.format(name=queued)}")
    text = answer if isinstance(answer, str) else json.dumps(answer)
    assert code in (200, 403, 404), answer
    assert SECRET not in text
    if code == 200:
        assert "bob" not in text


def test_a_stranger_reads_no_metrics(site: Site, queued: str) -> None:
    for caller in (site.ann.kube, site.ann.rest):
        code, answer = caller.call("GET", "/metrics", Authorization="")
        assert code in (401, 403, 404), answer


def test_explain_run_by_a_tenant_names_nobody_else(site: Site, queued: str, tmp_path: Path) -> None:
    cluster = {"server": site.server.url, "certificate-authority": str(site.server.ca)}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": site.ann.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ann"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    printed = site.trainmaster("explain", queued, "-n", "ann", "--kubeconfig", str(path))
    assert queued in printed
    assert SECRET not in printed and "bob" not in printed
