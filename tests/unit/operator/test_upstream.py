"""A training-operator on the cluster: which kinds it runs, and when ours must not start beside it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import DEPLOYMENTS, VALIDATING_WEBHOOK_CONFIGURATIONS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, ObjectList
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.jobs.models.v1jobs import MODELS, MPIJob, PyTorchJob, TFJob
from trainmaster.operator.upstream import check_no_other_owner, check_pod_groups, find_training_operator

pytestmark = pytest.mark.unit

UPSTREAM = "ghcr.io/kubeflow/training-v1/training-operator"
EVERY = frozenset(model.framework.singular for model in MODELS)


def make_deployment(*arguments: str, image: str = UPSTREAM, **spec: Any) -> Object:
    container: Object = {"name": "o", "image": image, "command": ["/manager"], "args": list(arguments)}
    container["env"] = spec.pop("env", [])
    template = {"metadata": {"labels": spec.pop("labels", {})}, "spec": {"containers": [container]}}
    return {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": {"template": template, **spec}}


def make_webhooks(*plurals: str, suffix: str = "training-operator.kubeflow.org") -> Object:
    rules = {plural: [{"apiGroups": ["kubeflow.org"], "resources": [plural]}] for plural in plurals}
    webhooks = [{"name": f"validator.{name}.{suffix}", "rules": rule} for name, rule in rules.items()]
    return {"metadata": {"name": "validator"}, "webhooks": webhooks}


class Upstream:
    """A client that lists these objects, or says no."""

    def __init__(
        self,
        *deployments: Object,
        webhooks: Object | None = None,
        refusal: StatusError | None = None,
        allowed: bool | None = True,
    ):
        self._deployments = list(deployments)
        self._webhooks = webhooks
        self._refusal = refusal
        self._allowed = allowed
        self.asked: list[Object] = []

    async def list(self, gvr: GVR, namespace: str = "", options: object = None) -> ObjectList:
        if self._refusal is not None:
            raise self._refusal
        return ObjectList(self._deployments if gvr == DEPLOYMENTS else [], "1")

    async def get(self, gvr: GVR, name: str) -> Object:
        if self._refusal is not None:
            raise self._refusal
        if gvr != VALIDATING_WEBHOOK_CONFIGURATIONS or self._webhooks is None:
            raise NotFound(404, "NotFound", "there are none")
        return self._webhooks

    async def create(self, gvr: GVR, obj: Object) -> Object:
        self.asked.append(obj["spec"])
        if self._allowed is None:
            raise StatusError(403, "Forbidden", "no")
        return {**obj, "status": {"allowed": self._allowed}}


def check(client: Upstream, *models: Any, namespace: str = "") -> None:
    asyncio.run(check_no_other_owner(cast(Client, client), models, (namespace,) if namespace else ()))


@pytest.mark.parametrize(
    ("deployment", "schemes"),
    [
        (make_deployment(), EVERY),
        (make_deployment("--enable-scheme=tfjob", "--enable-scheme=PyTorchJob"), {"tfjob", "pytorchjob"}),
        (make_deployment("-enable-scheme", "MPIJob", "--leader-elect"), {"mpijob"}),
        (make_deployment(image="localhost:5000/mirror/training-operator:v1.8.1@sha256:0"), EVERY),
        (make_deployment(image="ours", labels={"control-plane": "kubeflow-training-operator"}), EVERY),
        (make_deployment(image="ghcr.io/kubeflow/trainer/trainer-controller-manager"), None),
        (make_deployment(replicas=0), None),
        ({"metadata": {"name": "a", "namespace": "b"}, "spec": {}}, None),
    ],
)
def test_a_training_operator_is_known_by_its_image_or_label(deployment: Object, schemes: set[str] | None) -> None:
    found = find_training_operator(deployment)
    assert (None if found is None else found.schemes) == schemes


def test_a_kind_that_training_operator_runs_is_refused_with_what_to_do() -> None:
    with pytest.raises(OSError, match="runs PyTorchJobs, and two controllers") as caught:
        check(Upstream(make_deployment()), PyTorchJob)
    for text in ("training-operator in the namespace kubeflow", "pytorchjob out of --v1-jobs", "--enable-scheme=KIND"):
        assert text in str(caught.value)


def test_kinds_that_it_was_told_to_leave_are_ours() -> None:
    client = Upstream(make_deployment("--enable-scheme=tfjob"))
    check(client, PyTorchJob, MPIJob)
    with pytest.raises(OSError, match="TFJobs"):
        check(client, PyTorchJob, TFJob)
    check(Upstream(make_deployment()))


@pytest.mark.parametrize("limited", [{"env": [{"name": "KUBEFLOW_NAMESPACE", "value": "a"}]}, {}])
def test_operators_of_different_namespaces_do_not_meet(limited: dict[str, Any]) -> None:
    client = Upstream(make_deployment(*([] if limited else ["--namespace=a"]), **limited))
    check(client, PyTorchJob, namespace="b")
    for namespace in ("", "a"):
        with pytest.raises(OSError, match="PyTorchJobs"):
            check(client, PyTorchJob, namespace=namespace)


def test_a_deployment_that_may_not_write_jobs_is_not_believed() -> None:
    client = Upstream(make_deployment("--enable-scheme=pytorchjob", "--namespace=a"), allowed=False)
    check(client, PyTorchJob)
    (asked,) = client.asked
    assert asked["user"] == "system:serviceaccount:kubeflow:default"
    wanted = {"group": "kubeflow.org", "resource": "pytorchjobs", "subresource": "status", "verb": "update"}
    assert asked["resourceAttributes"] == {**wanted, "namespace": "a"}
    with pytest.raises(OSError, match="PyTorchJobs"):
        check(Upstream(make_deployment(), allowed=None), PyTorchJob)


def test_a_webhook_for_a_kind_that_nobody_serves_is_refused() -> None:
    webhooks = make_webhooks("pytorchjobs", "tfjobs")
    left = Upstream(make_deployment("--enable-scheme=tfjob"), webhooks=webhooks)
    with pytest.raises(OSError, match=r"remove validator\.pytorchjobs\..* with `kubectl edit validatingwebhook"):
        check(left, PyTorchJob)
    with pytest.raises(OSError, match=r"validator\.pytorchjobs\.[^,]*, validator\.tfjobs"):
        check(Upstream(webhooks=webhooks), PyTorchJob, TFJob)
    check(left, MPIJob)
    check(Upstream(webhooks=make_webhooks("pytorchjobs", suffix="example.com")), PyTorchJob)


def test_who_may_not_look_is_warned_and_starts(caplog: pytest.LogCaptureFixture) -> None:
    check(Upstream(refusal=StatusError(403, "Forbidden", "no")), PyTorchJob)
    assert "cannot see whether training-operator runs the same kinds" in caplog.text
    with pytest.raises(StatusError):
        check(Upstream(refusal=StatusError(500, "InternalError", "broken")), PyTorchJob)


@pytest.mark.parametrize(
    ("name", "text"), [("volcano", "scheduling.volcano.sh; install Volcano"), ("x", "coscheduling")]
)
def test_a_gang_scheduler_that_is_not_installed_is_refused(name: str, text: str) -> None:
    missing = cast(Client, Upstream(refusal=NotFound(404, "NotFound", "no such kind")))
    with pytest.raises(OSError, match=text):
        asyncio.run(check_pod_groups(missing, V1Cluster(name)))
    asyncio.run(check_pod_groups(missing, V1Cluster()))
    asyncio.run(check_pod_groups(cast(Client, Upstream()), V1Cluster(name)))
