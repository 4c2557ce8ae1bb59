"""A tenant pretends that a Pod belongs to somebody else's job: by labels, by owner references, through templates."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.site import Caller, Site, unique
from tests.support.clients import JSON
from tests.support.twister import count_foretold

pytestmark = pytest.mark.attacks

TRAINER = "trainer.kubeflow.org/v1alpha1"
JOBSET_UID, JOBSET_NAME = "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/jobset-name"
SECRET = "weights-of-ann"
LOOK = "env | grep TRAINMASTER_; ls -R /trainmaster; cat /trainmaster/checkpoints/secret.txt; true"
HEALTHY = f"echo {SECRET} > $TRAINMASTER_CHECKPOINT_DIR/secret.txt; echo kept; sleep 600"


def start_trainjob(caller: Caller, name: str, script: str, **spec: Any) -> JSON:
    trainer = {"image": "python:3.11", "command": ["sh", "-c", script]}
    body = {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer, **spec},
    }
    created: JSON = caller.kube.create(caller.path("trainjobs", group=TRAINER), body)
    return created


def wait_for_member(caller: Caller, name: str) -> JSON:
    """The only Pod of the job, once it has printed something."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pods = caller.kube.get(f"{caller.path('pods')}?labelSelector={JOBSET_NAME}={name}")["items"]
        if (
            pods
            and pods[0].get("status", {}).get("phase") == "Running"
            and caller.read_log(pods[0]["metadata"]["name"])
        ):
            found: JSON = pods[0]
            return found
        time.sleep(0.1)
    raise AssertionError(f"no Pod of {name} runs")


@pytest.fixture(scope="module")
def member(site: Site) -> Iterator[JSON]:
    """A Pod of ann's job, which has a checkpoint that is nobody else's business."""
    name = unique("merger")
    start_trainjob(site.ann, name, HEALTHY)
    yield wait_for_member(site.ann, name)
    site.ann.kube.delete(site.ann.path("trainjobs", name, group=TRAINER))


def bind(site: Site, caller: Caller, name: str) -> None:
    """Past the scheduler, which waits for a JobSet that is not there."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "local"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    site.owner.kube.create(caller.path("pods", name, "binding"), body)


def copy_labels(member: JSON) -> dict[str, str]:
    return dict(member["metadata"]["labels"])


def test_a_member_has_its_jobs_checkpoints(site: Site, member: JSON) -> None:
    """So that the other tests can fail."""
    assert "kept" in site.ann.read_log(member["metadata"]["name"])


@pytest.mark.parametrize(
    "key",
    [
        JOBSET_UID,
        JOBSET_NAME,
        "jobset.sigs.k8s.io/replicatedjob-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "controller-uid",
        "job-name",
        "trainer.kubeflow.org/trainjob-ancestor-step",
        "training.kubeflow.org/job-name",
    ],
)
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_labels_of_controllers_are_refused_on_a_tenants_pod(site: Site, field: str, key: str) -> None:
    pod = site.bob.build_pod(unique("stray"), "true", metadata={field: {key: "x"}})
    code, answer = site.bob.kube.call("POST", site.bob.path("pods"), pod)
    assert code == 403, answer
    assert f"{key} is written by controllers only" in answer["message"]


def test_all_labels_of_another_tenants_pod_are_refused_together(site: Site, member: JSON) -> None:
    pod = site.bob.build_pod(unique("stray"), LOOK, metadata={"labels": copy_labels(member)})
    code, answer = site.bob.kube.call("POST", site.bob.path("pods"), pod)
    assert code == 403, answer


def test_a_pod_that_came_in_before_the_rule_gets_nothing_of_the_job_it_names(site: Site, member: JSON) -> None:
    """The owner may write what admission refuses to tenants: so an old home may hold such a Pod."""
    name = unique("stray")
    pod = site.bob.build_pod(name, LOOK, metadata={"labels": copy_labels(member)})
    site.owner.kube.create(site.bob.path("pods"), pod)
    bind(site, site.bob, name)
    site.bob.wait_for_pod(name)
    printed = site.bob.read_log(name)
    site.bob.kube.delete(f"{site.bob.path('pods', name)}?gracePeriodSeconds=0")
    assert SECRET not in printed
    assert "TRAINMASTER_CHECKPOINT_DIR" not in printed
    # What it printed is not in the logs of the job that it names.
    assert site.ann.read_log(member["metadata"]["name"]).split() == ["kept"]


def test_a_stray_pod_of_the_same_tenant_is_no_member_either(site: Site, member: JSON) -> None:
    """All labels of a member, in the right namespace, and no Job that made it."""
    name = unique("stray")
    labels = {key: text for key, text in copy_labels(member).items() if "controller-uid" not in key}
    pod = site.ann.build_pod(name, LOOK, metadata={"labels": labels})
    site.owner.kube.create(site.ann.path("pods"), pod)
    site.ann.wait_for_pod(name)
    printed = site.ann.read_log(name)
    site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")
    assert SECRET not in printed


@pytest.mark.parametrize("controller", [True, False])
def test_a_tenants_pod_cannot_name_another_tenants_job_as_its_owner(
    site: Site, member: JSON, *, controller: bool
) -> None:
    owner = {**member["metadata"]["ownerReferences"][0], "controller": controller}
    pod = site.bob.build_pod(unique("stray"), LOOK, metadata={"ownerReferences": [owner]})
    code, answer = site.bob.kube.call("POST", site.bob.path("pods"), pod)
    assert code == 403, answer
    assert "metadata.ownerReferences[0]" in answer["message"]


def test_a_tenants_pod_cannot_make_itself_rank_7_of_the_tenants_own_job(site: Site, member: JSON) -> None:
    pod = site.ann.build_pod(unique("stray"), LOOK, metadata={"ownerReferences": member["metadata"]["ownerReferences"]})
    code, answer = site.ann.kube.call("POST", site.ann.path("pods"), pod)
    assert code == 403, answer
    assert "only controllers" in answer["message"]


def test_nothing_in_another_namespace_holds_up_the_deletion_of_a_job(site: Site) -> None:
    name = unique("doomed")
    job = start_trainjob(site.ann, name, "sleep 600")
    owner = {"apiVersion": TRAINER, "kind": "TrainJob", "name": name, "uid": job["metadata"]["uid"]}
    holder = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "finalizers": ["example.com/never"],
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
    }
    code, answer = site.bob.kube.call("POST", site.bob.path("configmaps"), holder)
    assert code == 403, answer
    assert f"there is no TrainJob {name} with that uid in this namespace" in answer["message"]
    site.owner.kube.create(site.bob.path("configmaps"), holder)
    path = site.ann.path("trainjobs", name, group=TRAINER)
    site.ann.kube.call("DELETE", f"{path}?propagationPolicy=Foreground")
    deadline = time.monotonic() + 60
    while site.ann.kube.call("GET", path)[0] != 404:
        assert time.monotonic() < deadline, "the deletion waits for an object of another tenant"
        time.sleep(0.1)
    site.owner.kube.merge(site.bob.path("configmaps", name), {"metadata": {"finalizers": None}})


def test_labels_of_controllers_are_refused_in_templates_too(site: Site, member: JSON) -> None:
    forged = {JOBSET_UID: member["metadata"]["labels"][JOBSET_UID]}
    pod = {
        "metadata": {"labels": forged},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}]},
    }
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pod}}}]}}
    runtime = {
        "apiVersion": TRAINER,
        "kind": "TrainingRuntime",
        "metadata": {"name": unique("forged"), "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"template": template},
    }
    code, answer = site.bob.kube.call("POST", site.bob.path("trainingruntimes", group=TRAINER), runtime)
    assert code == 403, answer
    assert f"{JOBSET_UID} is written by controllers only" in answer["message"]
    for spec in ({"labels": forged}, {"annotations": forged}):
        body = {
            "apiVersion": TRAINER,
            "kind": "TrainJob",
            "metadata": {"name": unique("forged")},
            "spec": {"runtimeRef": {"name": "plain"}, **spec},
        }
        code, answer = site.bob.kube.call("POST", site.bob.path("trainjobs", group=TRAINER), body)
        assert code == 403, answer
        assert f"{JOBSET_UID} is written by controllers only" in answer["message"]


def test_request_ids_do_not_foretell_uids(site: Site) -> None:
    """Every answer hands one to strangers."""
    address = urllib.parse.urlsplit(site.server.url).netloc
    context = ssl.create_default_context(cafile=str(site.server.ca))
    connection, ids = http.client.HTTPSConnection(address, context=context, timeout=30), []
    with contextlib.closing(connection):
        for _ in range(400):
            connection.request("GET", "/livez")
            response = connection.getresponse()
            response.read()
            ids.append(str(response.headers["Audit-Id"]))
    assert len(set(ids)) == 400
    assert count_foretold(ids) == 0
