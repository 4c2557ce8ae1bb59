"""v1 jobs as TrainJobs: what becomes of roles, variables and policies, and what the report says about it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.api.meta import Object
from trainmaster.api.v1jobs import frameworks
from trainmaster.api.v1jobs.frameworks import JAX, MPI, MXNET, PADDLE, PYTORCH, TENSORFLOW, XGBOOST, V1Framework
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.jobs.conversion.convert import Conversion, convert
from trainmaster.jobs.models.v1jobs import MODELS

pytestmark = pytest.mark.unit

MODEL = {model.framework: model for model in MODELS}


def make(framework: V1Framework, replicas: dict[str, int], restart: str = "Never", **spec: Any) -> Object:
    container = {"name": framework.container, "image": "train:1", "command": ["python", "train.py", "--fast"]}
    entry = {"restartPolicy": restart, "template": {"spec": {"containers": [container]}}}
    types = {name: {**entry, "replicas": count} for name, count in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.kind,
        "metadata": {"name": "a", "namespace": "team", "uid": "u"},
        "spec": {framework.replicas_field: types, **spec},
    }


def run(framework: V1Framework, replicas: dict[str, int], restart: str = "Never", **spec: Any) -> Conversion:
    return convert(MODEL[framework](make(framework, replicas, restart, **spec)))


def list_jobs(found: Conversion) -> dict[str, Object]:
    jobs = found.runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"] for job in jobs}


def get_container(found: Conversion, role: str = "node") -> Object:
    container: Object = list_jobs(found)[role]["template"]["spec"]["containers"][0]
    return container


def test_a_pytorch_job_is_started_with_torchrun_on_as_many_nodes() -> None:
    found = run(PYTORCH, {"Master": 1, "Worker": 2}, nprocPerNode="2")
    assert found.runtime["spec"]["mlPolicy"] == {"numNodes": 3, "torch": {"numProcPerNode": 2}}
    assert get_container(found)["command"] == ["torchrun", "train.py", "--fast"]
    assert get_container(found)["name"] == "node"
    assert list_jobs(found)["node"]["parallelism"] == 3
    assert found.trainjob["metadata"] == {"name": "a", "namespace": "team"}
    assert any("torchrun" in line for line in found.changes)
    assert any("not when the master does" in line for line in found.changes)


def test_what_v2_cannot_express_is_said() -> None:
    found = run(PYTORCH, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}, nprocPerNode="gpu")
    assert any("elasticPolicy" in line for line in found.lost)
    assert any("nprocPerNode gpu" in line for line in found.lost)
    raw = make(PYTORCH, {"Master": 1, "Worker": 1})
    raw["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {"spec": {"containers": [{"name": "pytorch"}]}}
    different = convert(MODEL[PYTORCH](raw))
    assert any("the template of Master differs" in line for line in different.lost)


def test_tensorflow_gets_its_cluster_from_the_runtime() -> None:
    found = run(TENSORFLOW, {"PS": 1, "Worker": 2})
    variables = {entry["name"]: entry for entry in get_container(found, "worker")["env"]}
    config = json.loads(variables["TF_CONFIG"]["value"].replace("$(JOB_INDEX)", "1"))
    assert config == {
        "cluster": {"ps": ["a-ps-0-0.a:2222"], "worker": ["a-worker-0-0.a:2222", "a-worker-0-1.a:2222"]},
        "environment": "cloud",
        "task": {"type": "worker", "index": 1},
    }
    assert list(variables) == ["JOB_INDEX", "TF_CONFIG"], "a variable can use only those before it"
    assert list_jobs(found)["worker"]["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert "successPolicy" not in list_jobs(run(TENSORFLOW, {"Worker": 2}, successPolicy="AllWorkers"))["worker"]
    chief = run(TENSORFLOW, {"Chief": 1, "Worker": 1}).runtime["spec"]["template"]["spec"]
    assert chief["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}


def test_the_launcher_of_an_mpi_job_waits_for_workers_that_run_sshd() -> None:
    found = run(MPI, {"Launcher": 1, "Worker": 2}, slotsPerWorker=4)
    policy = found.runtime["spec"]["mlPolicy"]
    assert (policy["numNodes"], policy["mpi"]["numProcPerNode"]) == (2, 4)
    assert get_container(found)["command"] == ["/usr/sbin/sshd", "-De"]
    assert get_container(found, "launcher")["command"] == ["python", "train.py", "--fast"]
    template = found.runtime["spec"]["template"]["spec"]
    assert template["replicatedJobs"][1]["dependsOn"] == [{"name": "node", "status": "Ready"}]
    assert template["successPolicy"]["targetReplicatedJobs"] == ["launcher"]


@pytest.mark.parametrize(
    ("framework", "replicas", "names"),
    [
        (JAX, {"Worker": 2}, "JAX_COORDINATOR_ADDRESS"),
        (XGBOOST, {"Master": 1, "Worker": 1}, "DMLC_TRACKER_URI"),
        (PADDLE, {"Worker": 2}, "PADDLE_"),
        (MXNET, {"Scheduler": 1, "Server": 1, "Worker": 1}, "DMLC_"),
    ],
)
def test_variables_that_change_are_named(framework: V1Framework, replicas: dict[str, int], names: str) -> None:
    found = run(framework, replicas, **({"jobMode": "MXTrain"} if framework is MXNET else {}))
    assert any(names in line for line in (*found.changes, *found.lost))


def test_policies_are_taken_over() -> None:
    policy = {"backoffLimit": 3, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5, "suspend": True}
    found = run(PYTORCH, {"Worker": 1}, "ExitCode", runPolicy=policy)
    spec = found.trainjob["spec"]
    assert (spec["suspend"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (True, 60, 5)
    failure = found.runtime["spec"]["template"]["spec"]["failurePolicy"]
    assert failure["maxRestarts"] == 3
    assert failure["rules"][0]["action"] == "FailJobSet"
    assert list_jobs(found)["node"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"][-1] == 127
    never = run(PYTORCH, {"Worker": 1}).runtime["spec"]["template"]["spec"]
    assert never["failurePolicy"]["maxRestarts"] == 0


def ask(*words: str, given: str = "") -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main(("convert", *words), CommandContext({}, out, err, io.StringIO(given)))
    return code, out.getvalue(), err.getvalue()


REPLICAS = {
    PYTORCH: {"Master": 1, "Worker": 2},
    TENSORFLOW: {"Chief": 1, "PS": 1, "Worker": 2, "Evaluator": 1},
    MPI: {"Launcher": 1, "Worker": 2},
    XGBOOST: {"Master": 1, "Worker": 2},
    PADDLE: {"Master": 1, "Worker": 2},
    JAX: {"Worker": 2},
    MXNET: {"Scheduler": 1, "Server": 1, "Worker": 2},
}


@pytest.mark.parametrize("framework", frameworks.FRAMEWORKS, ids=lambda one: one.name)
def test_the_result_is_accepted_for_every_kind(framework: V1Framework) -> None:
    job = make(framework, REPLICAS[framework], **({"jobMode": "MXTrain"} if framework is MXNET else {}))
    del job["metadata"]["uid"]
    code, out, err = ask("-f", "-", "--check", given=json.dumps(job))
    assert code == exits.OK, err
    kinds = [document["kind"] for document in yaml.safe_load_all(out)]
    assert kinds == ["TrainingRuntime", "TrainJob"]
    assert f"{framework.kind} a -> TrainJob a" in err
    assert "  changes:" in err
    assert "  variables:" in err


def test_other_objects_are_passed_on_and_mistakes_are_named(tmp_path: Path) -> None:
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
    job = make(PYTORCH, {"Worker": 1})
    code, out, _ = ask("-f", "-", given=f"{settings}---\n{json.dumps(job)}")
    assert code == exits.OK
    assert [document["kind"] for document in yaml.safe_load_all(out)] == ["ConfigMap", "TrainingRuntime", "TrainJob"]
    code, _, err = ask("-f", "-", given=settings)
    assert (code, "nothing to convert" in err) == (exits.USAGE, True)
    code, _, err = ask("-f", "-", given=json.dumps(make(PYTORCH, {"Master": 2})))
    assert (code, "must be 1" in err) == (exits.FAILED, True)
