"""`operator`: settings that contradict one another are refused before anything is asked of a cluster."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit

HOMED = ("Service", "ServiceAccount")


def run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return main(["operator", *arguments], CommandContext({}, out, err)), out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--companion", "--v1-jobs", "all"), "leave out one of the two"),
        (("--companion", "--v1-jobs", "tfjob"), "leave out one of the two"),
        (("--v1-jobs", "tfjob,caffejob"), "--v1-jobs caffejob: it must be all, or some of pytorchjob, tfjob"),
        (("--gang-scheduler-name", "volcano"), "--gang-scheduler-name is for the kinds that --v1-jobs names"),
        (("--webhooks", "--companion"), "--webhooks: a companion"),
        (("--webhooks", "--no-webhook"), "serves none"),
        (("--records",), "--records: there are only records with an archive"),
        (("--webhooks", "--webhook-url", "http://here"), "--webhook-url http://here: it must be https://NAME:PORT"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments: tuple[str, ...], text: str) -> None:
    code, _, err = run("--print-manifests", *arguments)
    assert code == 2 and text in err and err.count("\n") == 1


def test_the_manifests_have_the_kinds_that_are_named() -> None:
    code, out, _ = run("--print-manifests", "--v1-jobs", "PyTorchJob, mpijob", "--gang-scheduler-name", "volcano")
    names = [item["metadata"]["name"] for item in json.loads(out)["items"]]
    assert code == 0 and {"pytorchjobs.kubeflow.org", "mpijobs.kubeflow.org"} <= set(names)
    assert "tfjobs.kubeflow.org" not in names


def list_kinds(text: str) -> set[str]:
    return {item["kind"] for item in json.loads(text)["items"]}


def test_a_whole_installation_is_printed(tmp_path: Path) -> None:
    code, out, _ = run("--print-manifests", "--namespace", "a,b", "--lease-namespace", "mine", "--log-level", "debug")
    assert code == 0 and {"Deployment", "ValidatingWebhookConfiguration", "Namespace"} <= list_kinds(out)
    by_kind = {item["kind"]: item for item in json.loads(out)["items"] if item["metadata"].get("namespace") == "mine"}
    settings = by_kind["ConfigMap"]["data"]["operator.toml"]
    assert 'namespaces = ["a","b"]' in settings and 'level = "debug"' in settings
    assert "system:serviceaccount:mine:trainmaster-operator" in out
    values = tmp_path / "values.yaml"
    values.write_text("manager: {replicas: 3, config: {workers: 5}}")
    code, out, _ = run("--print-manifests", "--values", str(values), "--no-runtimes")
    assert code == 0 and '"replicas": 3' in out and "runtimes = false" in out and "workers = 5" in out


@pytest.mark.parametrize(
    ("values", "arguments", "text"),
    [
        ("manager: {replica: 3}", (), "manager.replica: there is no such value; did you mean replicas?"),
        ("v1Jobs: [tfjob]", ("--companion",), "v1Jobs: runs jobs, which a companion does not"),
        ("[]", (), "must be a mapping"),
        ("{", (), "not valid YAML"),
        ("{}", ("--webhook-url", "https://here:1"), "--webhook-url: is for an operator in the foreground"),
        ("{}", ("--webhook-cert-dir", "/x"), "set the value webhook.certManager.enabled"),
        ("{}", ("--health-port", "1"), "--health-port: is for an operator in the foreground"),
        ("{}", ("--history", "/x"), "manager.replicas: several replicas cannot share the claim"),
    ],
)
def test_values_that_cannot_be_installed_are_refused(
    tmp_path: Path, values: str, arguments: tuple[str, ...], text: str
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    code, _, err = run("--print-manifests", "--values", str(file), *arguments)
    assert code == 2 and text in err and err.count("\n") == 1


def test_without_a_deployment_webhook_configurations_are_printed_on_request() -> None:
    code, out, _ = run("--print-manifests", "--without-deployment", "--history", "relative")
    assert code == 0 and "WebhookConfiguration" not in out and "Deployment" not in list_kinds(out)
    arguments = ("--print-manifests", "--without-deployment", "--webhooks")
    code, out, _ = run(*arguments, "--namespace", "a,b", "--lease-namespace", "mine")
    found = [item for item in json.loads(out)["items"] if item["kind"].endswith("WebhookConfiguration")]
    assert code == 0 and [item["metadata"]["name"] for item in found] == ["trainmaster-operator"] * 2
    homes = {item["metadata"]["namespace"] for item in json.loads(out)["items"] if item["kind"] in HOMED}
    assert homes == {"mine"}, "the Service that the configurations name is printed"
    assert "system:serviceaccount:mine:trainmaster-operator" in out
    hook = found[1]["webhooks"][0]
    assert hook["clientConfig"]["service"]["namespace"] == "mine" and '"a"' in json.dumps(hook["namespaceSelector"])
    code, out, _ = run(*arguments, "--webhook-url", "https://10.0.0.1:9443/")
    assert '"url": "https://10.0.0.1:9443/validate' in out


def test_the_api_of_the_records_is_part_of_an_installation_with_an_archive(tmp_path: Path) -> None:
    arguments = ("--print-manifests", "--without-deployment", "--lease-namespace", "mine", "--companion")
    assert "APIService" not in run(*arguments, "--history", "/x")[1], "nobody may be behind the Service"
    code, out, _ = run(*arguments, "--history", "/x", "--records")
    found = {item["kind"]: item for item in json.loads(out)["items"]}
    assert code == 0 and found["APIService"]["spec"]["service"] == {
        "namespace": "mine",
        "name": "trainmaster-operator",
        "port": 8444,
    }
    assert 8444 in [port["port"] for port in found["Service"]["spec"]["ports"]]
    assert "APIService" not in run("--print-manifests")[1]
    (tmp_path / "values.yaml").write_text("manager: {replicas: 1}")
    everything = run("--print-manifests", "--history", "/x", "--values", str(tmp_path / "values.yaml"))[1]
    assert "APIService" in everything and "extension-apiserver-authentication-reader" in everything


def test_what_is_printed_is_not_for_a_running_operator() -> None:
    for arguments in (("--webhooks",), ("--records",), ("--without-deployment",), ("--values", "values.yaml")):
        code, _, err = run(*arguments)
        assert code == 2 and "use it with --print-manifests" in err
