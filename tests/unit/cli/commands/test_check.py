"""`trainmaster check`: each field of a manifest and what a server would say, without a server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.cli import exits
from trainmaster.cli.commands.check import shorten
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted({path.parent for path in ROOT.glob("examples/**/*.yaml")})


class Check:
    def __init__(self) -> None:
        self.out = self.err = ""

    def __call__(self, text: str, *flags: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        code = main(("check", "-f", "-", *flags), CommandContext({}, out, err, io.StringIO(text)))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def read(self, text: str, *flags: str) -> list[dict[str, Any]]:
        self(text, "-o", "json", *flags)
        found: list[dict[str, Any]] = json.loads(self.out)
        return found


@pytest.fixture
def check() -> Check:
    return Check()


def make(**spec: Any) -> str:
    body = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    return yaml.safe_dump(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "a", "namespace": "team"},
            "spec": body,
        },
        sort_keys=False,
    )


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: main
    image: x
    securityContext:
      privileged: true
"""


def test_every_field_is_listed_with_its_class_and_line(check: Check) -> None:
    (found,) = check.read(make(trainer={"numNodes": 2, "image": "x", "command": ["python"]}))
    assert found["ok"] and not found["errors"]
    classes = {entry["path"]: (entry["class"], entry["line"]) for entry in found["fields"]}
    assert classes["spec.trainer.numNodes"] == ("honoured", 10)
    assert classes["spec.trainer.image"] == ("approximated", 11)
    assert next(one["note"] for one in found["fields"] if one["path"] == "spec.trainer.image")


def test_a_good_manifest_ends_with_0_and_strict_makes_errors_of_approximations(check: Check) -> None:
    text = make(trainer={"numNodes": 2, "image": "x", "command": ["python"]})
    assert check(text) == exits.OK
    assert "would run" in check.err
    assert check(text, "--strict") == exits.FAILED
    assert "error: -:11: spec.trainer.image: approximated: images are not pulled" in check.out
    assert check(make(trainer={"numNodes": 2, "command": ["python"]}), "--strict") == exits.OK


def test_a_refused_field_says_what_to_do(check: Check) -> None:
    assert check(POD) == exits.FAILED
    assert "error: -:9: spec.containers[0].securityContext.privileged: not carried out on one machine" in check.out
    assert "remove it, or run the job on a cluster" in check.out
    assert check(POD.replace("true", "false")) == exits.OK, "what asks for nothing passes"


@pytest.mark.parametrize(
    ("spec", "line", "words"),
    [
        ({"trainer": {"numNodes": "two"}}, 10, "spec.trainer.numNodes"),
        ({"trainer": {"numNodes": 0}}, 10, "must be greater than or equal to 1"),
        ({"trainer": {"nodes": 2}}, 10, 'unknown field "spec.trainer.nodes"'),
        ({"runtimeRef": {"name": "none"}}, 6, "none"),
        ({"trainer": {"env": [{"name": "PET_NNODES", "value": "7"}]}}, 0, "PET_NNODES"),
    ],
)
def test_schema_and_admission_answer_as_a_server_does(
    check: Check, spec: dict[str, Any], line: int, words: str
) -> None:
    (found,) = check.read(make(**spec))
    assert not found["ok"]
    assert words in str(found["errors"])
    assert line in (0, *(one["line"] for one in found["errors"])), found["errors"]


def test_a_runtime_in_the_same_file_serves_the_job_behind_it(check: Check) -> None:
    runtime = yaml.safe_load((ROOT / "trainmaster/manifests/plain.yaml").read_text())
    runtime["metadata"]["name"] = "own"
    job = make(runtimeRef={"name": "own"}, trainer={"command": ["true"]})
    assert check(yaml.safe_dump(runtime) + "---\n" + job) == exits.OK
    assert check(job + "---\n" + yaml.safe_dump(runtime)) == exits.FAILED, "a server would not know it yet"


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n", "write a TrainJob"),
        ("apiVersion: v1\nkind: TrainJob\n", "TrainJob is served as trainer.kubeflow.org/v1alpha1, not as v1"),
        ("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJbo\n", "did you mean TrainJob?"),
        ("apiVersion: example.com/v1\nkind: Zebra\n", "docs/kinds.md"),
        ("kind: Pod\n", "apiVersion must be given"),
        ("a: 1\n", "apiVersion and kind must be given"),
        ("apiVersion: [v1]\nkind: Pod\n", "apiVersion must be given, as text"),
        ("apiVersion: v1\nkind: Pod\nmetadata: 7\n", "metadata"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 'Not A Name'}\nspec: {containers: []}\n", "metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: 'NOT ONE'}\n", "NOT ONE"),
        ("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: []\n", "spec"),
        ("apiVersion: [\n", "not YAML: line 2"),
    ],
)
def test_bad_documents_are_told_what_is_wrong(check: Check, head: str, words: str) -> None:
    assert check(head) == exits.FAILED
    assert words in check.out
    assert "error: -:" in check.out


def test_one_bad_document_does_not_hide_the_others(check: Check) -> None:
    text = "apiVersion: example.com/v1\nkind: Zebra\n---\n" + make(trainer={"command": ["true"]})
    found = check.read(text)
    assert [entry["ok"] for entry in found] == [False, True]
    assert found[1]["fields"][0]["line"] > 3


def test_nothing_to_check_is_a_wrong_command_line(check: Check) -> None:
    assert check("# only a remark\n") == exits.USAGE
    assert "nothing in it to check" in check.err


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_would_run(path: Path) -> None:
    out = io.StringIO()
    assert main(("check", "-f", str(path)), CommandContext({}, out, io.StringIO())) == exits.OK, out.getvalue()


def test_a_runtime_that_is_not_shipped_is_asked_for(check: Check) -> None:
    assert check(make(runtimeRef={"name": "own"})) == exits.FAILED
    assert "if a server has this runtime, give its manifest too, before the job" in check.out


def test_long_paths_lose_their_middle() -> None:
    long = (
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.volumes[0].hostPath"
    )
    assert shorten("spec.trainer.image") == "spec.trainer.image"
    assert shorten(long) == "spec.….spec.replicatedJobs[0].template.spec.volumes[0].hostPath"
    assert len(shorten("spec." + "x" * 200)) <= 70
