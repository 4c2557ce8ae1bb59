"""`trainmaster check`: each field of a manifest and what a server would say, without a server."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, NODES, PODS, RESOURCE_QUOTAS
from trainmaster.cli import exits
from trainmaster.cli.commands.check import shorten
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.client.contract import Client, ObjectList
from trainmaster.controllers.install import list_manifests, parse_manifest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[4]
EXAMPLES = [
    *sorted(
        {
            path.parent
            for path in ROOT.glob("examples/**/*.yaml")
            if not (path.parent / "kustomization.yaml").exists() and path.parent.name != "kueue"
        }
    ),
    # kubectl reads the files beside it: a kustomization, and patches.
    ROOT / "examples" / "v1" / "base" / "pytorch-dist-job.yaml",
    # The file beside it has Kueue's kinds, which only a cluster serves.
    ROOT / "examples" / "kueue" / "trainjob.yaml",
]


class Check:
    def __init__(self) -> None:
        self.out = self.err = ""

    def __call__(self, text: str, *flags: str, serve: Any = None, **environ: str) -> int:
        """On no machine, unless an environment or a server is given."""
        out, err = io.StringIO(), io.StringIO()
        flags = flags if environ or serve else ("--any-machine", *flags)
        code = main(("check", "-f", "-", *flags), CommandContext(environ, out, err, io.StringIO(text), serve))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def read(self, text: str, *flags: str, serve: Any = None, **environ: str) -> list[dict[str, Any]]:
        self(text, "-o", "json", *flags, serve=serve, **environ)
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
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJobs\n", "did you mean PyTorchJob?"),
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
    asked = ("check", "-f", str(path), "--any-machine")
    assert main(asked, CommandContext({}, out, io.StringIO())) == exits.OK, out.getvalue()


def test_a_runtime_that_is_not_shipped_is_asked_for(check: Check) -> None:
    assert check(make(runtimeRef={"name": "own"})) == exits.FAILED
    assert "if a server has this runtime, give its manifest too, before the job" in check.out


def ask_for(nodes: int, **amounts: str) -> str:
    return make(trainer={"numNodes": nodes, "resourcesPerNode": {"requests": amounts}})


def test_without_a_server_a_job_is_compared_with_this_machine(check: Check, tmp_path: Path) -> None:
    environ = {"TRAINMASTER_HOME": str(tmp_path / "absent"), "TRAINMASTER_NODE_CPUS": "2"}
    assert check(ask_for(2, cpu="1"), **environ) == exits.OK
    assert "start: now" in check.out and "would start now" in check.err
    assert "no server is running: compared with this machine (2 CPUs, " in check.err
    assert check(ask_for(3, cpu="1"), **environ) == exits.FAILED
    text = (
        "error: the job asks for 3 CPUs, node local has 2: ask for less, or use fewer nodes; or set overcommit = 1.5 "
    )
    assert text in check.out
    assert "start: never" in check.out
    assert check(ask_for(3, cpu="1"), TRAINMASTER_NODE_OVERCOMMIT="1.5", **environ) == exits.OK
    assert "jobs on node local share its 2 CPUs: together they may request 3" in check.err
    assert not (tmp_path / "absent").exists()


def test_every_obstacle_on_this_machine_is_an_error(check: Check, tmp_path: Path) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1000"}}}
    pod = {"nodeSelector": {"gpu": "h100", "pool": "train"}, "containers": [container]}
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod})
    (found,) = check.read(text, TRAINMASTER_HOME=str(tmp_path))
    assert [error["text"].partition(",")[0] for error in found["errors"]] == [
        "it asks for 1000 GPUs",
        "no node has the label gpu=h100 (node local has no label gpu); the label pool=train (node local has no label "
        "pool); `kubectl label node local --overwrite gpu=h100 pool=train` changes that",
    ]
    assert found["start"]["state"] == "never"


def test_what_runs_nothing_is_compared_with_nothing(check: Check, tmp_path: Path) -> None:
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}})
    assert check(text, TRAINMASTER_HOME=str(tmp_path)) == exits.OK
    assert "machine" not in check.err and "start" not in check.out


class Server:
    """What a server answers: a node of two CPUs, and a runtime of its own."""

    def __init__(self) -> None:
        self.objects: dict[GVR, list[Object]] = {}
        offered = {"cpu": "2", "memory": "8Gi", "pods": "10"}
        self.add(NODES, {"metadata": {"name": "local"}, "status": {"capacity": offered, "allocatable": offered}})
        runtime = next(parse_manifest(text) for name, text in list_manifests() if name == "torch-distributed")
        self.add(CLUSTER_TRAINING_RUNTIMES, {**runtime, "metadata": {**runtime["metadata"], "name": "own", "uid": "u"}})

    def add(self, gvr: GVR, obj: Object) -> None:
        self.objects.setdefault(gvr, []).append(obj)

    async def list(self, gvr: GVR, namespace: str = "") -> ObjectList:
        listed = self.objects.get(gvr, [])
        chosen = [obj for obj in listed if namespace in ("", obj["metadata"].get("namespace", ""))]
        return ObjectList(items=chosen, resource_version="1")

    def serve(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(work(cast(Client, self)))


def test_the_scheduler_of_a_running_server_is_asked(check: Check) -> None:
    server = Server()
    own = make(runtimeRef={"name": "own"}, trainer={"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}})
    assert check(own, serve=server.serve) == exits.OK, check.out
    assert "start: now" in check.out and "asked the scheduler of in-process" in check.err
    spec = {"nodeName": "local", "containers": [{"name": "m", "resources": {"requests": {"cpu": "1"}}}]}
    server.add(PODS, {"metadata": {"name": "busy", "namespace": "default", "uid": "b"}, "spec": spec})
    assert check(own, serve=server.serve) == exits.OK
    text = "start: later, waiting for 2 CPUs: 1 of 2 free; first in the queue; starts when default/busy ends"
    assert text in check.out
    assert "would run later" in check.err
    assert check(make(runtimeRef={"name": "torch-distributed"}), serve=server.serve) == exits.FAILED, "it was removed"


def make_v1(workers: int, kind: str = "PyTorchJob", field: str = "pytorchReplicaSpecs", **limits: str) -> str:
    container = {"name": field.removesuffix("ReplicaSpecs"), "image": "x", "command": ["true"]}
    container |= {"name": "tensorflow"} if kind == "TFJob" else {}
    template = {"spec": {"containers": [{**container, "resources": {"limits": limits}}]}}
    meta = {"name": "a", "namespace": "team"}
    spec = {field: {"Worker": {"replicas": workers, "template": template}}}
    return yaml.safe_dump({"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": meta, "spec": spec})


def test_a_v1_job_is_compared_with_this_machine(check: Check, tmp_path: Path) -> None:
    environ = {"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_NODE_CPUS": "2"}
    assert check(make_v1(2, **{"nvidia.com/gpu": "8"}), **environ) == exits.FAILED
    assert "error: the job asks for 16 GPUs, node local has none" in check.out
    assert "start: never" in check.out and "would run" not in check.err
    assert check(make_v1(2, cpu="1"), **environ) == exits.OK, check.out
    assert "start: now" in check.out


@pytest.mark.parametrize(("kind", "field"), [("PyTorchJob", "pytorchReplicaSpecs"), ("TFJob", "tfReplicaSpecs")])
def test_a_v1_job_waits_behind_what_runs_on_a_server_unless_it_is_that_job(check: Check, kind: str, field: str) -> None:
    server, text = Server(), make_v1(2, kind, field, cpu="1")
    assert check(text, serve=server.serve) == exits.OK, check.out
    assert "start: now" in check.out
    for name in ("a", "b"):
        job = yaml.safe_load(text)
        job["metadata"] |= {"name": name, "uid": f"u-{name}"}
        owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": name, "uid": f"u-{name}", "controller": True}
        labels = {"training.kubeflow.org/replica-type": "worker"}
        meta: Object = {"name": f"{name}-worker-0", "namespace": "team", "uid": "p", "labels": labels}
        meta["ownerReferences"] = [owner]
        containers = [{"name": "m", "resources": {"requests": {"cpu": "1"}}}]
        server.objects[GVR("kubeflow.org", "v1", f"{kind.lower()}s")] = [job]
        server.objects[PODS] = [{"metadata": meta, "spec": {"nodeName": "local", "containers": containers}}]
        assert check(text, serve=server.serve) == exits.OK
        assert ("start: now" in check.out) is (name == "a"), "an existing job of the same name is replaced"
    assert "starts when team/b ends" in check.out


def test_a_v1_job_whose_pods_a_server_would_refuse_is_an_error(check: Check) -> None:
    job = yaml.safe_load(make_v1(1, cpu="1"))
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["serviceAccountName"] = "only-on-the-server"
    assert check(yaml.safe_dump(job)) == exits.OK, check.out
    pod["containers"][0]["volumeMounts"] = [{"name": "nowhere", "mountPath": "/data"}]
    assert check(yaml.safe_dump(job)) == exits.FAILED
    assert "its Pods of the type Worker are refused" in check.out and "nowhere" in check.out


@pytest.mark.parametrize(("limit", "state"), [("1", "never"), ("2", "later"), ("3", "now")])
def test_quotas_of_the_namespace_count(check: Check, limit: str, state: str) -> None:
    server = Server()
    server.objects[NODES][0]["status"]["allocatable"]["cpu"] = "8"
    meta = {"name": "q", "namespace": "team", "uid": "q"}
    server.add(RESOURCE_QUOTAS, {"metadata": meta, "spec": {"hard": {"requests.cpu": limit}}})
    spec = {"nodeName": "local", "containers": [{"name": "m", "resources": {"requests": {"cpu": "1"}}}]}
    server.add(PODS, {"metadata": {"name": "busy", "namespace": "team", "uid": "b"}, "spec": spec})
    job = make(runtimeRef={"name": "own"}, trainer={"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}})
    (found,) = check.read(job, serve=server.serve)
    assert found["start"]["state"] == state
    text = "quota q of namespace team: requests.cpu would be 2, and at most 1 is allowed"
    assert [error["text"] for error in found["errors"]] == ([text] if state == "never" else [])


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([], "you may not read its nodes and its queue"),
        ([{"metadata": {"name": "worker-1"}}], "it has a scheduler of its own"),
    ],
)
def test_where_our_scheduler_cannot_be_asked_that_is_said(check: Check, nodes: list[Object], reason: str) -> None:
    server = Server()
    server.objects[NODES] = nodes
    assert check(make(runtimeRef={"name": "own"}), serve=server.serve) == exits.OK
    assert f"did not ask whether jobs fit in-process: {reason}" in check.err
    assert "start:" not in check.out and "would run" in check.err
    quota = {"metadata": {"name": "q", "namespace": "team", "uid": "q"}, "spec": {"hard": {"pods": "2"}}}
    server.add(RESOURCE_QUOTAS, quota)
    assert check(make(runtimeRef={"name": "own"}, trainer={"numNodes": 3}), serve=server.serve) == exits.FAILED
    assert "error: quota q of namespace team: pods would be 3, and at most 2 is allowed" in check.out


def test_long_paths_lose_their_middle() -> None:
    long = (
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.volumes[0].hostPath"
    )
    assert shorten("spec.trainer.image") == "spec.trainer.image"
    assert shorten(long) == "spec.….spec.replicatedJobs[0].template.spec.volumes[0].hostPath"
    assert len(shorten("spec." + "x" * 200)) <= 70


def test_a_kustomization_is_named_with_the_way_to_check_it() -> None:
    out, path = io.StringIO(), ROOT / "examples" / "v1" / "overlay"
    flags = ("check", "-f", str(path / "kustomization.yaml"), "--any-machine")
    assert main(flags, CommandContext({}, out, io.StringIO())) == exits.FAILED
    assert f"`kubectl kustomize {path} | trainmaster check -f -` checks what it builds" in out.getvalue()
