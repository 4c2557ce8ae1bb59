"""`trainmaster operator install`, `upgrade` and `uninstall` on a real control plane; fake nodes play the Pods."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.kube.managers import install_jobset
from tests.support.installation import CHART, RELEASE, Helm
from tools.toolbox import Toolbox
from trainmaster.api.labels import INSTALLATION
from trainmaster.cli.context import CommandContext
from trainmaster.cli.exits import Failure
from trainmaster.cli.installation.cluster.applying import install as install_with
from trainmaster.cli.installation.cluster.inventory import NAME as INVENTORY
from trainmaster.cli.installation.cluster.removal import uninstall as uninstall_with
from trainmaster.cli.installation.cluster.work import InstallationOptions, InstallationWork
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

pytestmark = pytest.mark.kube

NAMESPACE = "trainmaster-system"
NAME = "trainmaster-operator"
QUIET = ("--set", "webhook.enabled=false")
"""Fake Pods answer no webhooks."""
KINDS = (
    "serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,configmaps,services,deployments,"
    "poddisruptionbudgets,networkpolicies,mutatingwebhookconfigurations,validatingwebhookconfigurations"
)
"""Of an installation; those that stay are left out."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "jobset", "kwok", "helm"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    with KubeCluster(Parts(nodes=1, unlimited=True), toolbox=toolbox) as made:
        # Its kinds; nobody runs a job here.
        install_jobset(made)
        yield made


@pytest.fixture(autouse=True)
def cleared(cluster: KubeCluster) -> Iterator[None]:
    yield
    run(cluster, "uninstall", "--no-wait")


def run(cluster: KubeCluster, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainmaster.cli", "operator", *arguments]
    command += ["--kubeconfig", str(kubeconfig or cluster.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def install(cluster: KubeCluster, *arguments: str) -> str:
    return succeed(run(cluster, "install", *QUIET, *arguments))


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def fail(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    assert done.returncode == code and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stderr


def get(cluster: KubeCluster, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", *arguments, "-o", "json"))
    return found


def list_installed(cluster: KubeCluster) -> set[str]:
    """Everything with our label, except for what stays when it is removed."""
    names = cluster.kubectl("get", KINDS, "-A", "-l", INSTALLATION, "-o", "name").split()
    return {name for name in names if name != f"configmap/{INVENTORY}"}


def is_there(cluster: KubeCluster, *arguments: str) -> bool:
    return bool(cluster.kubectl("get", *arguments, "--ignore-not-found", "-o", "name"))


def submit(cluster: KubeCluster) -> None:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "suspend": True}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "mine"},
        "spec": spec,
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))


def test_an_installation_is_there_when_its_pods_are_ready_and_jobs_survive_its_removal(cluster: KubeCluster) -> None:
    text = install(cluster, "--set", "manager.replicas=2")
    assert f"deployment.apps/{NAME} in {NAMESPACE} created\n" in text and "2 of 2 Pods ready" in text
    assert get(cluster, "deployment", NAME, "-n", NAMESPACE)["status"]["availableReplicas"] == 2
    data = get(cluster, "configmap", INVENTORY, "-n", NAMESPACE)["data"]
    recorded = [one for one in json.loads(data["objects.json"]) if not one["kept"]]
    assert data["complete"] == "true" and len(recorded) == len(list_installed(cluster))
    assert "is installed in trainmaster-system already" in fail(run(cluster, "install", *QUIET))

    submit(cluster)
    text = succeed(run(cluster, "uninstall"))
    assert "3 definitions stay with all jobs" in text and "namespace/trainmaster-system" in text
    assert list_installed(cluster) == set() and not is_there(cluster, "configmap", INVENTORY, "-n", NAMESPACE)
    assert is_there(cluster, "trainjob", "mine") and is_there(cluster, "namespace", NAMESPACE)
    assert not is_there(cluster, "pods", "-n", NAMESPACE)
    assert "`trainmaster operator install` made" in fail(run(cluster, "uninstall"), 7)

    install(cluster)
    assert is_there(cluster, "trainjob", "mine")
    assert "among them 1 TrainJobs" not in fail(run(cluster, "uninstall", "--delete-crds")), "nobody is there to ask"
    assert is_there(cluster, "trainjob", "mine")
    succeed(run(cluster, "uninstall", "--delete-crds", "--yes"))
    assert not is_there(cluster, "crd", "trainjobs.trainer.kubeflow.org")


def test_an_upgrade_keeps_values_and_removes_what_they_no_longer_ask_for(cluster: KubeCluster) -> None:
    more = ("--set", "networkPolicy.enabled=true", "--set", "v1Jobs={tfjob}", "--set", "manager.replicas=1")
    install(cluster, *more)
    before = list_installed(cluster)
    policies = {name for name in before if name.startswith("networkpolicy")}
    assert policies

    text = succeed(run(cluster, "upgrade"))
    assert f"unchanged: {len(before) + 6} of {len(before) + 6} objects" in text and " changed\n" not in text, text
    assert list_installed(cluster) == before

    text = succeed(run(cluster, "upgrade", "--set", "networkPolicy.enabled=false", "--set", "manager.config.workers=4"))
    assert f"configmap/{NAME} in {NAMESPACE} changed\n" in text
    assert f"deployment.apps/{NAME} in {NAMESPACE} changed\n" in text
    assert list_installed(cluster) == before - policies
    assert get(cluster, "deployment", NAME, "-n", NAMESPACE)["spec"]["replicas"] == 1

    text = succeed(run(cluster, "upgrade", "--reset-values", *QUIET, "--dry-run"))
    assert "customresourcedefinition.apiextensions.k8s.io/tfjobs.kubeflow.org kept (dry run)" in text
    assert f"deployment.apps/{NAME} in {NAMESPACE} changed (dry run)" in text
    assert list_installed(cluster) == before - policies
    succeed(run(cluster, "upgrade", "--reset-values", *QUIET))
    assert get(cluster, "deployment", NAME, "-n", NAMESPACE)["spec"]["replicas"] == 2
    assert is_there(cluster, "crd", "tfjobs.kubeflow.org")


def test_what_is_interrupted_after_any_write_can_be_removed_or_completed(cluster: KubeCluster) -> None:
    """The process ends after so many writes."""

    class Gone(BaseException):
        pass

    async def act(action: Callable[[InstallationWork], Awaitable[int]], writes: int) -> bool:
        left = writes

        def check() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Gone

        client = HttpClient(load_kubeconfig([cluster.kubeconfig]))
        options = InstallationOptions(NAMESPACE, assignments=("webhook.failurePolicy=Ignore",), wait=False)
        try:
            await action(InstallationWork(client.fenced(check), CommandContext({}), options))
        except Gone:
            return False
        finally:
            await client.close()
        return True

    rehearsals = len(list_writes(cluster))
    # The namespace, the inventory, the first object, one in the middle, the last object.
    for number in (0, 1, 2, 9, rehearsals):
        assert not asyncio.run(act(install_with, rehearsals + number))
        if is_there(cluster, "configmap", INVENTORY, "-n", NAMESPACE):
            asyncio.run(act(uninstall_with, 1000))
        assert list_installed(cluster) == set(), f"after {number} writes"
    asyncio.run(act(install_with, rehearsals + 8))
    assert asyncio.run(act(install_with, 1000)) and is_there(cluster, "deployment", NAME, "-n", NAMESPACE)


def test_two_who_install_at_once_do_not_mix_what_they_write(cluster: KubeCluster) -> None:
    async def install_twice() -> list[int | BaseException]:
        client = HttpClient(load_kubeconfig([cluster.kubeconfig]))
        options = InstallationOptions(NAMESPACE, assignments=("webhook.enabled=false",), wait=False)
        work = InstallationWork(client, CommandContext({}), options)
        try:
            return list(await asyncio.gather(install_with(work), install_with(work), return_exceptions=True))
        finally:
            await client.close()

    [one, other] = asyncio.run(install_twice())
    assert {type(one), type(other)} == {int, Failure}, (one, other)
    assert "somebody else is changing the installation in trainmaster-system" in f"{one} {other}"


def list_writes(cluster: KubeCluster) -> list[str]:
    return [line for line in succeed(run(cluster, "install", "--dry-run")).splitlines() if "(dry run)" in line]


def check_refused(cluster: KubeCluster, text: str, *arguments: str, code: int = 1, **options: Any) -> None:
    """And nothing was changed."""
    before = list_installed(cluster)
    assert text in fail(run(cluster, *arguments, **options), code)
    assert list_installed(cluster) == before


def test_values_that_are_wrong_are_refused(cluster: KubeCluster, tmp_path: Path) -> None:
    check_refused(cluster, "manager.replica", "install", "--set", "manager.replica=3", code=2)
    check_refused(cluster, "--set manager: must be KEY=VALUE", "install", "--set", "manager", code=2)
    check_refused(cluster, "nowhere.yaml: No such file", "install", "--values", "nowhere.yaml", code=2)
    (tmp_path / "values.yaml").write_text("manager: {replicas: many}\n")
    check_refused(cluster, "manager.replicas", "install", "--values", str(tmp_path / "values.yaml"), code=2)
    check_refused(cluster, "serviceMonitor and", "install", *QUIET, "--set", "serviceMonitor.enabled=true")


def test_helm_and_these_commands_leave_each_other_alone_and_follow_each_other(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    program = cluster.toolbox.find_program("helm")
    assert program is not None
    helm = Helm(program, tmp_path, cluster.kubeconfig)
    release = ("install", RELEASE, str(CHART), *QUIET, "--namespace", NAMESPACE, "--create-namespace")
    helm.run(*release, "--take-ownership")
    text = f"belongs to the Helm release {RELEASE} in namespace {NAMESPACE}: use `helm upgrade`"
    check_refused(cluster, text, "install", *QUIET)
    check_refused(cluster, "its Deployment belongs to a Helm release: use helm", "uninstall", code=7)
    helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)

    install(cluster, "--no-wait")
    refused = helm.ask(*release)
    assert refused.returncode and 'current value is "trainmaster"' in refused.stderr, refused.stderr
    succeed(run(cluster, "uninstall"))
    helm.run(*release, "--take-ownership")
    helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)


def test_installations_do_not_take_objects_from_one_another(cluster: KubeCluster) -> None:
    install(cluster, "--no-wait")
    text = "belongs to the installation in namespace trainmaster-system: use"
    check_refused(cluster, text, "install", "--namespace", "other", *QUIET)
    own = "instance=other,watchNamespaces={default},crds.enabled=false,kubeflowSystem.publicConfigMap=false"
    named = ("--set", f"{own},kubeflowSystem.createNamespace=false")
    succeed(run(cluster, "install", "--namespace", "other", *QUIET, *named, "--no-wait"))
    succeed(run(cluster, "uninstall", "--namespace", "other", "--no-wait"))
    check_refused(cluster, "namespace other has nothing that", "upgrade", "--namespace", "other", code=7)
    # What somebody has taken out of it is not deleted.
    cluster.kubectl("label", "service", NAME, "-n", NAMESPACE, f"{INSTALLATION}-")
    text = succeed(run(cluster, "uninstall", "--no-wait"))
    assert f"service/{NAME} in {NAMESPACE} stays: it does not belong to the installation" in text
    assert is_there(cluster, "service", NAME, "-n", NAMESPACE)


def test_a_cluster_without_jobsets_or_with_another_controller_is_refused(cluster: KubeCluster) -> None:
    pod = {"containers": [{"name": "manager", "image": "example.com/trainer/trainer-controller-manager:v2"}]}
    labels = {"app": "trainer"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    trainer = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "trainer", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(trainer))
    try:
        check_refused(cluster, "Kubeflow Trainer's manager (default/trainer) runs the same TrainJobs", "install")
    finally:
        cluster.kubectl("delete", "deployment", "trainer")
    cluster.kubectl("delete", "crd", "jobsets.jobset.x-k8s.io")
    try:
        check_refused(cluster, "the cluster does not serve JobSets", "install")
        assert "warning: the cluster does not serve JobSets" in install(cluster, "--no-wait")
    finally:
        install_jobset(cluster)


def test_fields_of_others_are_taken_over_only_on_request(cluster: KubeCluster) -> None:
    trainer = cluster.toolbox.find_manifest("trainer", "manifests")
    if trainer is None:
        pytest.skip(cluster.toolbox.why_missing("trainer"))
    cluster.kubectl("delete", "crd", "-l", INSTALLATION)
    cluster.apply(cluster.kubectl("kustomize", str(trainer / "base" / "crds")))
    check_refused(cluster, "if this is the definition of Kubeflow Trainer", "install", *QUIET)
    install(cluster, "--no-wait", "--force-conflicts")
    cluster.kubectl("scale", "deployment", NAME, "-n", NAMESPACE, "--replicas=5")
    text = fail(run(cluster, "upgrade", "--set", "manager.replicas=3"))
    assert '"kubectl" with subresource "scale"' in text and "has set spec.replicas, with other values" in text, text
    succeed(run(cluster, "upgrade", "--set", "manager.replicas=3", "--force-conflicts"))


def test_who_may_not_install_learns_it_at_once(cluster: KubeCluster) -> None:
    kubeconfig = cluster.work / "kube-scheduler.kubeconfig"
    text = fail(run(cluster, "install", *QUIET, kubeconfig=kubeconfig))
    assert "forbidden" in text and "cluster's administrator" in text, text
    assert list_installed(cluster) == set()


def test_pods_that_do_not_come_are_explained(cluster: KubeCluster) -> None:
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
    cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", NAMESPACE)
    text = fail(run(cluster, "install", *QUIET, "--timeout", "5s"), 6)
    assert "its Pods are not ready after 5 s" in text and "exceeded quota: none" in text, text
    cluster.kubectl("delete", "quota", "none", "-n", NAMESPACE)
    assert "of 2 Pods ready" in succeed(run(cluster, "upgrade"))
