"""Helm, kustomize and our own command install the same objects, which a real API server accepts; and what Helm does to
them over the life of a release.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.support.installation import CHART, REFUSED, RELEASE, SETS, Helm, index, read_objects
from tools.install_files import KUSTOMIZE, VARIANTS
from tools.toolbox import Toolbox
from trainmaster.api.meta import Object
from trainmaster.operator.install import ValuesError, build_objects, read_values
from trainmaster.operator.names import NAME, NAMESPACE
from trainmaster.operator.records.installation import NAME as RECORDS
from trainmaster.operator.rights import SERVICE_ACCOUNT

pytestmark = pytest.mark.kube

OTHER = "elsewhere"
OF_OTHERS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
"""Kinds that this cluster does not have."""
BUNDLE = "LS0tLS1CRUdJTi0="
TRAINJOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "kept", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "none"}, "suspend": True},
}


def find(name: str) -> Path:
    program = Toolbox().find_program(name)
    if program is None:
        pytest.skip(Toolbox().why_missing(name))
    return program


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in NEEDED:
        find(name)
    with KubeCluster(Parts(unlimited=True), toolbox=toolbox) as cluster:
        yield cluster


@pytest.fixture
def renderer(tmp_path: Path) -> Helm:
    return Helm(find("helm"), tmp_path)


@pytest.mark.parametrize("name", SETS)
def test_helm_makes_the_objects_that_we_make(name: str, renderer: Helm) -> None:
    namespace = OTHER if "v1Jobs" in SETS[name] else NAMESPACE
    done = renderer.render(SETS[name], namespace)
    assert done.returncode == 0, done.stderr
    rendered = index(read_objects(done.stdout))
    built = index(build_objects(read_values(SETS[name]), namespace))
    # Helm makes it itself (--create-namespace).
    del built["v1", "Namespace", "", namespace]
    assert sorted(rendered) == sorted(built)
    for key, obj in built.items():
        assert rendered[key] == obj, key


@pytest.mark.parametrize("name", REFUSED)
def test_helm_refuses_what_we_refuse(name: str, renderer: Helm) -> None:
    values, key = REFUSED[name]
    with pytest.raises(ValuesError) as refused:
        read_values(values)
    assert key in str(refused.value)
    done = renderer.render(values, NAMESPACE)
    assert done.returncode != 0
    path = key.replace(".", "/")
    assert any(text in done.stderr for text in (str(refused.value), f"/{path}'", f"/{path}/", f"'{key}'")), done.stderr


@pytest.mark.parametrize("variant", ["", *VARIANTS])
def test_kustomize_makes_the_objects_that_we_make(variant: str) -> None:
    folder = ROOT / KUSTOMIZE / variant
    done = subprocess.run([find("kubectl"), "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert index(read_objects(done.stdout)) == index(build_objects(read_values(VARIANTS.get(variant, {}))))


def test_an_api_server_accepts_every_object_and_warns_of_none(cluster: KubeCluster) -> None:
    objects: dict[str, Object] = {}
    for values in SETS.values():
        for one in build_objects(read_values(values)):
            if one["apiVersion"] not in OF_OTHERS:
                objects.setdefault(json.dumps(one, sort_keys=True), one)
    places = {one["metadata"]["namespace"] for one in objects.values() if one["metadata"].get("namespace")}
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    for place in places:
        meta = {"name": place, "labels": level}
        cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}))
    kubectl = [str(find("kubectl")), "--kubeconfig", str(cluster.kubeconfig)]
    command = [*kubectl, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"]
    stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())})
    done = subprocess.run(command, input=stdin, text=True, capture_output=True)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr


def read_webhooks(cluster: KubeCluster) -> list[Object]:
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    return list(json.loads(cluster.kubectl("get", kinds, "-o", "json"))["items"])


def fill_in(cluster: KubeCluster) -> None:
    """As the operator does."""
    for one in read_webhooks(cluster):
        for webhook in one["webhooks"]:
            webhook["clientConfig"]["caBundle"] = BUNDLE
        cluster.kubectl("replace", "-f", "-", stdin=json.dumps(one))

    patch = json.dumps({"spec": {"caBundle": BUNDLE}})
    cluster.kubectl("patch", "apiservice", RECORDS, "--type=merge", "-p", patch)


def list_bundles(cluster: KubeCluster) -> set[str]:
    hooks = [webhook for one in read_webhooks(cluster) for webhook in one["webhooks"]]
    service = json.loads(cluster.kubectl("get", "apiservice", RECORDS, "-o", "json"))
    return {webhook["clientConfig"].get("caBundle", "") for webhook in hooks} | {service["spec"].get("caBundle", "")}


def test_a_release_keeps_jobs_definitions_and_bundles(cluster: KubeCluster, tmp_path: Path) -> None:
    helm = Helm(find("helm"), tmp_path, cluster.kubeconfig)
    place = ("--namespace", NAMESPACE, "--create-namespace")
    # Nobody answers for the API of records here, as when all operators are away.
    history = {"history": {"enabled": True, "persistence": {"enabled": False}}}
    first = helm.write({"webhook": {"failurePolicy": "Ignore"}, "v1Jobs": ["tfjob"], **history})
    helm.run("install", RELEASE, str(CHART), *place, first)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(TRAINJOB))
    fill_in(cluster)
    second = helm.write({"manager": {"replicas": 3}, "webhook": {"timeoutSeconds": 7}, **history})
    helm.run("upgrade", RELEASE, str(CHART), *place, second)
    assert list_bundles(cluster) == {BUNDLE}
    policies = {webhook["failurePolicy"] for one in read_webhooks(cluster) for webhook in one["webhooks"]}
    assert policies == {"Fail"}
    deployment = json.loads(cluster.kubectl("get", "deployment", NAME, "-n", NAMESPACE, "-o", "json"))
    assert deployment["spec"]["replicas"] == 3

    def may(*arguments: str) -> str:
        command = ("auth", "can-i", *arguments, f"--as={SERVICE_ACCOUNT}")
        kubectl = [str(find("kubectl")), "--kubeconfig", str(cluster.kubeconfig), *command]
        return subprocess.run(kubectl, capture_output=True, text=True).stdout.strip()

    assert (may("list", "secrets", "-A"), may("update", "leases", "-n", "kube-system")) == ("no", "no")
    assert may("list", "trainjobs.trainer.kubeflow.org", "-A") == "yes"
    helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
    assert read_webhooks(cluster) == []
    assert "kept" in cluster.kubectl("get", "trainjobs", "-n", "default", "-o", "name")
    # The definitions of kinds that were in an earlier release are kept too.
    found = cluster.kubectl("get", "crd", "-o", "name")
    assert "trainjobs.trainer.kubeflow.org" in found and "tfjobs.kubeflow.org" in found
    assert "kubeflow-system" in cluster.kubectl("get", "namespaces", "-o", "name")
    helm.run("install", RELEASE, str(CHART), *place)
    helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)
