"""The command lines in docs/kubectl.md print what the page says; fields that pages read with kubectl exist."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.clients import Raw
from tests.support.kubectl import Kubectl
from tests.wire.scenario import matches

pytestmark = pytest.mark.wire

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "kubectl.md"
READ = re.compile(r"kubectl get (\w+) ([\w-]+) -o jsonpath=('[^'\n]+'|\{[^`\n]+)")
"""A command that reads one field of an object: kind, name, path."""
EXTERNAL = "kueue.x-k8s.io/multikueue"
STATUS = {
    "conditions": [
        {
            "type": "Failed",
            "status": "True",
            "reason": "TrainJobFailed",
            "message": "rank 0 failed",
            "lastTransitionTime": "2099-01-01T00:00:00Z",
        }
    ],
    "waiting": {"reason": "Unschedulable", "message": "the job asks for 8 GPUs"},
    "retention": {"ttlSecondsAfterFinished": 3600, "source": "the TrainJob"},
    "trainerStatus": {"progressPercentage": 10, "lastUpdatedTime": "2099-01-01T00:00:00Z"},
}
"""What the commands on the pages read; the job has an external controller, so nobody replaces it."""


def read_examples() -> list[tuple[str, str]]:
    """(command line, expected text) of every `$ kubectl` line in a console block."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for example in re.split(r"^\$ kubectl ", block, flags=re.MULTILINE)[1:]:
            line, _, want = example.partition("\n")
            found.append((line, want))
    return found


def test_the_page_tells_the_truth(kubectl: Kubectl) -> None:
    examples = read_examples()
    assert len(examples) > 10
    kubectl = replace(kubectl, cwd=ROOT)
    for line, want in examples:
        # The page says `default` where a reader has that and the test has a namespace of its own.
        line = re.sub(r"\bdefault:", f"{kubectl.namespace}:", line)
        want = want.replace("from default namespace", f"from {kubectl.namespace} namespace")
        answer = kubectl.run(line)
        assert matches(want, answer.out + answer.err), f"$ kubectl {line}\n{answer.out}{answer.err}"


def list_read_commands() -> list[tuple[str, str, str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.*"))]
    texts = [(page.relative_to(ROOT), page.read_text()) for page in pages if page.suffix in (".md", ".yaml", ".sh")]
    return [(str(page), found[1], found[2], found[3]) for page, text in texts for found in READ.finditer(text)]


def test_fields_that_pages_read_exist(kubectl: Kubectl, raw: Raw) -> None:
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{kubectl.namespace}/trainjobs"
    spec = {"runtimeRef": {"name": "torch-distributed"}, "managedBy": EXTERNAL}
    meta = {"name": "job", "annotations": {"trainmaster.dev/ttl-seconds-after-finished": "3600"}}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec}
    made = raw.create(path, job)
    code, answer = raw.call("PUT", f"{path}/job/status", {**made, "status": STATUS})
    assert code == 200, answer["message"]
    commands = list_read_commands()
    assert {kind for _, kind, _, _ in commands} == {"node", "trainjob"}
    for page, kind, name, field in commands:
        answer = kubectl.run(f"get {kind} {'job' if kind == 'trainjob' else name} -o jsonpath={field}")
        assert answer.out, f"{page}: kubectl get {kind} {name} -o jsonpath={field} prints nothing: {answer.err}"
