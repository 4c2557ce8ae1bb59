"""A cluster that an operator cannot work on, and an operator that was started wrongly: one sentence with what to do, in
the log, in an event and from `trainmaster doctor`. What the cluster lacks is waited for, and noticed when it comes."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.stage import make_trainjob
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.kube.managers import install_jobset
from tests.kube.processes import free_port
from tests.seam.operator_run import SECONDS, operating, write_kubeconfig
from tests.support.server import clean_environ
from tools.toolbox import Toolbox
from trainmaster.api.meta import Object
from trainmaster.auth.pki import issue_server_keys
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.kit.clock import SystemClock
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.mode import tell_refusal
from trainmaster.operator.own_pod import find_own_pod
from trainmaster.operator.rights import Duties
from trainmaster.operator.webhooks.configurations import WebhookPlan, build_configurations

pytestmark = pytest.mark.kube

_OWN = "trainmaster-system"


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[KubeCluster]:
    """Neither JobSet nor our kinds."""
    toolbox = Toolbox()
    for name in (*NEEDED, "jobset"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    with KubeCluster(Parts(), toolbox=toolbox) as cluster:
        yield cluster


def list_events(cluster: KubeCluster, namespace: str = _OWN) -> dict[str, Object]:
    """By reason, those about the operator."""
    items = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
    return {item["reason"]: item for item in items if item["reportingComponent"] == "trainmaster-operator"}


def wait_for_event(cluster: KubeCluster, reason: str, words: str) -> Object:
    end = time.monotonic() + SECONDS
    while True:
        event = list_events(cluster).get(reason)
        if event is not None:
            assert event["type"] == "Warning" and words in event["message"], event
            return event
        assert time.monotonic() < end, list_events(cluster)
        time.sleep(0.1)


def consult(kubeconfig: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """`trainmaster doctor`: exit code, and what it found by check (of several, the last)."""
    command = [sys.executable, "-m", "trainmaster.cli", "doctor", "--kubeconfig", str(kubeconfig), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environ({}))
    assert done.stdout, done.stderr
    return done.returncode, {check["check"]: check for check in json.loads(done.stdout)["checks"]}


def test_kinds_that_are_missing_are_named_and_waited_for(bare_cluster: KubeCluster, tmp_path: Path) -> None:
    bare_cluster.kubectl("create", "namespace", _OWN)
    with operating(bare_cluster.kubeconfig, tmp_path / "log") as run:
        run.check_said("DefinitionsMissing", "does not serve trainjobs.trainer.kubeflow.org (v1alpha1)")
        run.check_said("JobSetMissing", "install the manifests of a JobSet release")
        event = wait_for_event(bare_cluster, "JobSetMissing", "install the manifests of a JobSet release")
        assert event["involvedObject"]["kind"] == "Lease"
        code, found = consult(bare_cluster.kubeconfig)
        assert code == 1 and found["kinds"]["state"] == "problem", found
        assert "print-manifests" in found["kinds"]["advice"]
        assert "JobSet" in found["event JobSetMissing"]["seen"]
        bare_cluster.apply(json.dumps(build_manifests()))
        install_jobset(bare_cluster)
        run.wait_for("operator.ready")
        assert run.ask_ready()[0] == 200
        run.wait_for("operator.recovered", "reason=JobSetMissing")
        code, found = consult(bare_cluster.kubeconfig)
        assert {check: one["state"] for check, one in found.items() if one["state"] == "problem"} == {}, found
        assert code == 0 and "leads, the operator in trainmaster-system, version" in found["operator"]["seen"]


@pytest.fixture(scope="module")
def installed(bare_cluster: KubeCluster) -> KubeCluster:
    """With everything that an operator needs."""
    bare_cluster.apply(json.dumps(build_manifests()))
    install_jobset(bare_cluster)
    return bare_cluster


def test_rights_that_are_missing_are_named_and_waited_for(installed: KubeCluster, tmp_path: Path) -> None:
    installed.kubectl("create", "serviceaccount", "poor", "-n", "default")
    token = installed.kubectl("create", "token", "poor", "-n", "default").strip()
    kubeconfig = write_kubeconfig(installed, tmp_path / "poor", {"token": token})
    with operating(kubeconfig, tmp_path / "log") as run:
        run.check_said("RightsMissing", "may not read")
        assert "trainjobs.trainer.kubeflow.org" in run.wait_for("reason=RightsMissing")
        role = ("clusterrolebinding", "poor", "--clusterrole=cluster-admin", "--serviceaccount=default:poor")
        installed.kubectl("create", *role)
        run.wait_for("operator.ready")
    installed.kubectl("delete", "clusterrolebinding", "poor", "trainmaster-operator")
    code, found = consult(installed.kubeconfig)
    assert found["rights"]["state"] == "note" and "no ClusterRoleBinding" in found["rights"]["seen"]
    manifests = json.dumps(build_manifests())
    installed.apply(manifests)
    rule = {"op": "remove", "path": "/rules/1"}
    position = find_rule(installed, "trainjobs")
    rule["path"] = f"/rules/{position}"
    installed.kubectl("patch", "clusterrole", "trainmaster-operator", "--type=json", "-p", json.dumps([rule]))
    code, found = consult(installed.kubeconfig)
    assert code == 1 and "may not get trainjobs, list trainjobs" in found["rights"]["seen"], found["rights"]
    installed.apply(manifests)


def find_rule(cluster: KubeCluster, resource: str) -> int:
    rules = json.loads(cluster.kubectl("get", "clusterrole", "trainmaster-operator", "-o", "json"))["rules"]
    return next(number for number, rule in enumerate(rules) if resource in rule.get("resources", ()))


def test_credentials_that_expire_are_named_and_those_that_come_are_used(installed: KubeCluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("expired")
    kubeconfig = write_kubeconfig(installed, tmp_path / "config", {"tokenFile": str(file)})
    with operating(kubeconfig, tmp_path / "log") as run:
        run.check_said("CredentialsRefused", "has expired, was revoked")
        file.write_text(installed.token)
        run.wait_for("operator.ready")
        file.unlink()
        run.wait_for("cannot read the token file")
        file.write_text(installed.token)
    assert run.process.returncode == 0 or "not renewed" in run.read(), run.read()[-2000:]
    assert "Traceback" not in run.read()


def test_the_own_namespace_must_exist(installed: KubeCluster, tmp_path: Path) -> None:
    with operating(installed.kubeconfig, tmp_path / "log", "--lease-namespace", "nowhere") as run:
        run.wait_for("reason=NamespaceMissing", "own namespace nowhere does not exist")
        installed.kubectl("create", "namespace", "nowhere")
        run.wait_for("operator.ready")
    code, found = consult(installed.kubeconfig)
    assert code == 1 and found["operator"]["seen"] == "none leads in nowhere, trainmaster-system"
    installed.kubectl("delete", "namespace", "nowhere", "--wait=false")


PORTS: dict[str, tuple[str, ...]] = {
    "--health-port": (),
    "--metrics-port": (),
    "--progress-port": ("--progress-url", "https://localhost:1"),
    "--webhook-port": ("--webhook-url", "https://localhost:1"),
}


@pytest.mark.parametrize("flag", PORTS)
def test_a_port_that_is_taken_ends_it_with_one_sentence(installed: KubeCluster, tmp_path: Path, flag: str) -> None:
    host = "" if PORTS[flag] else "127.0.0.1"
    with socket.create_server((host, 0)) as taken:
        port = str(taken.getsockname()[1])
        check_end(installed, tmp_path, f"on port {port}: Address already in use", flag, port, *PORTS[flag])
    assert flag.removeprefix("--").replace("-", "_") in (tmp_path / "log").read_text().replace("-", "_")


def check_end(cluster: KubeCluster, folder: Path, words: str, *flags: str) -> None:
    """Exit code 1, one last sentence, and an event that says the same."""
    with operating(cluster.kubeconfig, folder / "log", *flags) as run:
        assert run.wait() == 1
    last = run.read().splitlines()[-1]
    assert last.startswith("trainmaster: ") and words in last, run.read()[-2000:]
    assert "Traceback" not in run.read()
    items = json.loads(cluster.kubectl("get", "events", "-n", _OWN, "-o", "json"))["items"]
    assert any(item["reason"] == "OperatorEnded" and words in item["message"] for item in items), items


def test_an_archive_that_cannot_be_written_ends_it_with_one_sentence(installed: KubeCluster, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = f"cannot keep records in {tmp_path}/file/records: Not a directory; name a directory with --history"
    check_end(installed, tmp_path, words, "--history", str(tmp_path / "file" / "records"))


@pytest.mark.parametrize("flag", ["--webhook-cert-dir", "--webhook-client-ca"])
def test_files_that_are_missing_end_it_with_one_sentence(installed: KubeCluster, tmp_path: Path, flag: str) -> None:
    webhooks = ("--webhook-url", "https://localhost:1", flag, str(tmp_path / "missing"))
    check_end(installed, tmp_path, "missing", *webhooks)


def test_settings_that_are_refused_are_an_event_about_the_pod(installed: KubeCluster, tmp_path: Path) -> None:
    """What a process in a Pod does before it ends; only a Pod has the files by which it finds its cluster. Its token is
    a real one."""
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "op-1", "namespace": _OWN}}
    installed.apply(json.dumps({**made, "spec": {"containers": [{"name": "a", "image": "a"}]}}))
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", "op-1")
    (tmp_path / "token").write_text(installed.kubectl("create", "token", "default", "-n", _OWN, *bound).strip())
    pod = find_own_pod(tmp_path)
    assert pod is not None
    config = ClusterConfig(installed.server, token=installed.token, ca_pem=installed.ca.read_text())
    tell_refusal(config, pod, "settings.toml: there is no setting operator.workerz; did you mean operator.workers?")
    items = json.loads(installed.kubectl("get", "events", "-n", _OWN, "-o", "json"))["items"]
    (told,) = [item for item in items if item["involvedObject"]["kind"] == "Pod"]
    assert "operator.workerz" in told["message"]
    assert "OperatorEnded" in installed.kubectl("describe", "pod", "op-1", "-n", _OWN)
    tell_refusal(ClusterConfig("https://127.0.0.1:1"), pod, "a cluster that is away changes nothing")


def test_operators_in_two_namespaces_are_a_finding(installed: KubeCluster, tmp_path: Path) -> None:
    installed.kubectl("create", "namespace", "second")
    with (
        operating(installed.kubeconfig, tmp_path / "one") as one,
        operating(installed.kubeconfig, tmp_path / "two", "--lease-namespace", "second") as two,
    ):
        one.wait_for("operator.ready")
        two.wait_for("operator.ready")
        code, found = consult(installed.kubeconfig)
    assert code == 1 and "second, trainmaster-system" in found["operators"]["seen"]
    with operating(installed.kubeconfig, tmp_path / "one") as one:
        one.wait_for("operator.ready")
        found = consult(installed.kubeconfig)[1]
        assert found["operator"]["state"] == "ok" and "operators" not in found


def test_another_version_waits_and_says_who_leads(installed: KubeCluster, tmp_path: Path) -> None:
    with operating(installed.kubeconfig, tmp_path / "one") as one:
        one.wait_for("operator.ready")
        with operating(installed.kubeconfig, tmp_path / "two") as two:
            line = two.wait_for("another process leads, waiting")
            assert f"holder={socket.gethostname()}" in line and "version=" in line


def test_a_ca_bundle_that_does_not_fit_is_noticed(installed: KubeCluster, tmp_path: Path) -> None:
    """Where somebody else keeps certificates. The API server says the same, to whoever creates a job."""
    right, wrong = (issue_server_keys(["127.0.0.1"], SystemClock()) for _ in range(2))
    (tmp_path / "tls.crt").write_text(right.certificate)
    (tmp_path / "tls.key").write_text(right.key)
    port = free_port()
    plan = WebhookPlan(Duties().user, url=f"https://127.0.0.1:{port}")
    flags = ("--webhook-url", plan.url, "--webhook-port", str(port), "--webhook-cert-dir", str(tmp_path))
    try:
        set_bundle(installed, plan, wrong.ca)
        with operating(installed.kubeconfig, tmp_path / "log", *flags) as run:
            run.wait_for("reason=CABundleWrong", "is not of its CA")
            wait_for_event(installed, "CABundleWrong", "have cert-manager inject the CA")
            found = consult(installed.kubeconfig)[1]["webhooks"]
            assert found["state"] == "problem" and "x509" in found["seen"], found
            set_bundle(installed, plan, right.ca)
            run.wait_for("operator.recovered", "reason=CABundleWrong")
            run.wait_for("operator.ready")
            assert consult(installed.kubeconfig)[1]["webhooks"]["state"] == "ok"
        assert consult(installed.kubeconfig)[1]["webhooks"]["state"] == "problem", "nobody answers any more"
    finally:
        for kind in ("mutating", "validating"):
            installed.kubectl("delete", f"{kind}webhookconfiguration", "trainmaster-operator")


def set_bundle(cluster: KubeCluster, plan: WebhookPlan, ca: str) -> None:
    items = build_configurations(plan)
    for hook in (hook for item in items for hook in item["webhooks"]):
        hook["clientConfig"]["caBundle"] = base64.b64encode(ca.encode()).decode()
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def test_what_is_left_of_kubeflow_trainer_is_a_finding(installed: KubeCluster, tmp_path: Path) -> None:
    with operating(installed.kubeconfig, tmp_path / "log") as run:
        run.wait_for("operator.ready")
    image = "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0"
    installed.kubectl("create", "deployment", "kubeflow-trainer-controller-manager", f"--image={image}")
    found = consult(installed.kubeconfig)[1]["others"]
    assert "default/kubeflow-trainer-controller-manager" in found["seen"] and "--companion" in found["advice"]
    installed.kubectl("delete", "deployment", "kubeflow-trainer-controller-manager")
    meta = {"name": "validator.trainer.kubeflow.org"}
    hooks = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    installed.apply(json.dumps({**hooks, "metadata": meta, "webhooks": []}))
    found = consult(installed.kubeconfig)[1]["others"]
    assert "still configured" in found["seen"] and "kubectl delete" in found["advice"]
    installed.kubectl("delete", "validatingwebhookconfiguration", meta["name"])
    assert consult(installed.kubeconfig)[1]["others"]["state"] == "ok"


def test_kubeflow_trainer_beside_an_operator_is_noticed(trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    """Its manager writes the status of the same TrainJobs, and its definitions lack our fields."""
    place = "beside"
    trainer_cluster.kubectl("create", "namespace", place)
    limits = ("--namespace", place, "--lease-namespace", place, "--no-runtimes")
    with operating(trainer_cluster.kubeconfig, tmp_path / "log", *limits) as run:
        line = run.wait_for("reason=DefinitionsOutdated", "or of an older version")
        assert "trainjobs.trainer.kubeflow.org lacks" in line and "spec.ttlSecondsAfterFinished" in line
        run.wait_for("operator.ready")
        job = make_trainjob(name="first", nodes=1)
        job["metadata"]["namespace"] = place
        trainer_cluster.apply(json.dumps(job))
        line = run.wait_for("reason=SecondController", "also writes the status of trainjobs")
        assert f"of {place}/first for example" in line and "--companion" in line
    events = list_events(trainer_cluster, place)
    assert {"DefinitionsOutdated", "SecondController"} <= set(events)
