"""`operator`: settings that contradict one another are refused before anything is asked of a cluster."""

from __future__ import annotations

import io
import json

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


def test_webhook_configurations_are_printed_on_request() -> None:
    code, out, _ = run("--print-manifests")
    assert code == 0 and "WebhookConfiguration" not in out
    code, out, _ = run("--print-manifests", "--webhooks", "--namespace", "a,b", "--lease-namespace", "mine")
    found = [item for item in json.loads(out)["items"] if item["kind"].endswith("WebhookConfiguration")]
    assert code == 0 and [item["metadata"]["name"] for item in found] == ["trainmaster-operator"] * 2
    homes = {item["metadata"]["namespace"] for item in json.loads(out)["items"] if item["kind"] in HOMED}
    assert homes == {"mine"}, "the Service that the configurations name is printed"
    assert "system:serviceaccount:mine:trainmaster-operator" in out
    hook = found[1]["webhooks"][0]
    assert hook["clientConfig"]["service"]["namespace"] == "mine" and '"a"' in json.dumps(hook["namespaceSelector"])
    code, out, _ = run("--print-manifests", "--webhooks", "--webhook-url", "https://10.0.0.1:9443/")
    assert '"url": "https://10.0.0.1:9443/validate' in out


def test_what_is_printed_is_not_for_a_running_operator() -> None:
    code, _, err = run("--webhooks")
    assert code == 2 and "use it with --print-manifests" in err
