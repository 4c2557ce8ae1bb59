"""The operator in Pods, as users install it: what others reach at its Service, and that jobs outlive its changes.

It is a release of the chart (`deployment.deploy`); that its Pods became ready is what `helm install --wait` waited for.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster import deployment
from tests.cluster.site import Site
from tests.kube.images import TRAINMASTER
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.operator.names import NAME, NAMESPACE
from trainmaster.operator.rights import METRICS_READER

pytestmark = pytest.mark.cluster

_READ_METRICS = f"""
import ssl, urllib.request
context = ssl._create_unverified_context()
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
for headers in ({{}}, {{"Authorization": "Bearer " + token}}):
    request = urllib.request.Request("https://{NAME}.{NAMESPACE}.svc:8443/metrics", headers=headers)
    try:
        print(urllib.request.urlopen(request, context=context).read().decode())
    except urllib.error.HTTPError as error:
        print("answered", error.code)
"""


def test_webhooks_behind_the_service_refuse_with_our_text(site: Site) -> None:
    with pytest.raises(AssertionError) as refused:
        site.submit("wrong", "true", runtimeRef={"name": "no-such-runtime"})
    text = "specified clusterTrainingRuntime must be created before the TrainJob is created"
    assert text in str(refused.value), refused.value
    assert site.find(TRAIN_JOBS, "wrong") is None


def test_metrics_are_for_accounts_that_may_read_them(site: Site) -> None:
    account = f"--serviceaccount={site.namespace}:default"
    site.cluster.kubectl("create", "clusterrolebinding", "reads-metrics", f"--clusterrole={METRICS_READER}", account)
    main = {"name": "main", "image": TRAINMASTER, "command": ["python3", "-c", _READ_METRICS]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "metrics"}}
    site.create(PODS, {**pod, "spec": {"restartPolicy": "Never", "containers": [main]}})
    site.await_that("it has read them", lambda: site.get(PODS, "metrics")["status"].get("phase") == "Succeeded")
    said = site.cluster.kubectl("logs", "metrics", "-n", site.namespace)
    assert said.startswith("answered 401\n") and '\nworkqueue_depth{name="trainjob"}' in said, said


def test_a_job_outlives_an_upgrade_and_the_removal_and_the_next_operator_finishes_it(
    site: Site, tmp_path: Path
) -> None:
    cluster = site.cluster
    site.add_runtime("outlived", terminationGracePeriodSeconds=1)
    until = "until [ -e /tmp/go ]; do sleep 0.1; done; echo goes"
    site.submit("outlives", until, nodes=2, runtime="outlived", ttlSecondsAfterFinished=1)
    site.await_ready("outlives")
    running, operators = list_running(site), deployment.list_operators(cluster)
    assert len(running) == 2

    deployment.upgrade(cluster, "manager.config.workers=4")
    deployment.await_gone(cluster, operators)
    later = deployment.list_operators(cluster)
    assert len(later) == 1 and list_running(site) == running

    deployment.uninstall(cluster)
    deployment.await_gone(cluster, later)
    assert list_running(site) == running
    for name in running:
        cluster.kubectl("exec", name, "-n", site.namespace, "--", "touch", "/tmp/go")
    site.await_that("its Pods complete", lambda: all(is_complete(pod) for pod in site.list_pods("outlives")))
    assert "conditions" not in site.get(TRAIN_JOBS, "outlives")["status"]

    values = tmp_path / "values.json"
    values.write_text(json.dumps(deployment.VALUES))
    text = deployment.run_command(cluster, "install", "--values", str(values))
    assert "1 of 1 Pod ready" in text, text
    site.await_that("its TTL deletes it", lambda: site.find(TRAIN_JOBS, "outlives") is None)
    assert "Complete" in deployment.read_record(cluster, "outlives", site.namespace)


def list_running(site: Site) -> dict[str, str]:
    """Names and uids of the Pods of the job."""
    pods = site.list_pods("outlives")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] == "Running"}


def is_complete(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")
