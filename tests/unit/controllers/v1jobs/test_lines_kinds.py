"""The lines of the conformance checklist about single kinds of training-operator: PyTorch (P), TensorFlow (T), MPI (M),
Paddle (D), JAX (J)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.controllers.v1jobs.stage import V1Stage, make_v1_job, read_variables
from trainmaster.api.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from trainmaster.api.v1jobs.frameworks import JAX, MPI, PADDLE, PYTORCH, TENSORFLOW
from trainmaster.controllers.v1jobs.mpi import is_gpu_launcher
from trainmaster.controllers.v1jobs.variables import read_bounds, read_processes
from trainmaster.jobs.models.v1jobs import PyTorchJob

pytestmark = pytest.mark.unit


def test_p01_the_variables_of_a_master() -> None:
    stage = V1Stage(PYTORCH, {"Master": 1, "Worker": 1})
    stage.play()
    pod = stage.get_pod("a-master-0")
    variables = read_variables(pod)
    assert (variables["MASTER_PORT"], variables["MASTER_ADDR"]) == ("23456", "a-master-0")
    assert variables["PET_NPROC_PER_NODE"] == "auto"
    assert pod["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_p02_a_master_that_succeeds_ends_the_job() -> None:
    stage = V1Stage(PYTORCH, {"Master": 1, "Worker": 1})
    stage.start()
    stage.set_phase("a-master-0", "Succeeded", 0)
    stage.play()
    assert stage.status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert stage.conditions[-1] == ("Succeeded", "True")


def test_p03_only_workers_of_a_job_with_a_master_wait_for_it() -> None:
    stage = V1Stage(PYTORCH, {"Master": 1, "Worker": 1})
    stage.play()
    assert "initContainers" not in stage.get_pod("a-master-0")["spec"]
    assert [one["name"] for one in stage.get_pod("a-worker-0")["spec"]["initContainers"]] == ["init-pytorch"]
    alone = V1Stage(PYTORCH, {"Worker": 1})
    alone.play()
    assert "initContainers" not in alone.get_pod("a-worker-0")["spec"]


def test_p04_the_variables_of_an_elastic_job() -> None:
    elastic = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "maxRestarts": 5,
        "rdzvBackend": "etcd",
        "rdzvHost": "h",
        "rdzvPort": 7,
        "rdzvId": "r",
        "rdzvConf": [{"key": "k", "value": "v"}, {"key": "l", "value": "w"}],
    }
    stage = V1Stage(PYTORCH, {"Worker": 2}, elasticPolicy=elastic)
    stage.play()
    assert read_variables(stage.get_pod("a-worker-1")) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_ENDPOINT": "h:7",
        "PET_RDZV_BACKEND": "etcd",
        "PET_NNODES": "1:3",
        "PET_MAX_RESTARTS": "5",
        "PET_RDZV_ID": "r",
        "PET_RDZV_CONF": "k=v,l=w",
    }


def test_p05_one_elastic_worker_that_succeeds_ends_the_job() -> None:
    stage = V1Stage(PYTORCH, {"Worker": 2}, elasticPolicy={"maxReplicas": 2})
    stage.start()
    assert read_variables(stage.get_pod("a-worker-1"))["PET_RDZV_ENDPOINT"] == "a-worker-0:23456"
    stage.set_phase("a-worker-1", "Succeeded", 0)
    stage.play()
    assert stage.conditions[-1] == ("Succeeded", "True")


@pytest.mark.parametrize(
    ("elastic", "bounds", "processes"),
    [
        (None, (2, 2), "auto"),
        ({}, (2, 2), "auto"),
        ({"minReplicas": 1}, (1, 1), "auto"),
        ({"maxReplicas": 4}, (4, 4), "auto"),
        ({"nProcPerNode": 8}, (2, 2), ""),
    ],
)
def test_p07_defaults(elastic: dict[str, int] | None, bounds: tuple[int, int], processes: str) -> None:
    job = PyTorchJob(make_v1_job(PYTORCH, {"Worker": 2}, elasticPolicy=elastic))
    assert (read_bounds(job), read_processes(job)) == (bounds, processes)


def read_config(stage: V1Stage, pod: str) -> Any:
    return json.loads(read_variables(stage.get_pod(pod))["TF_CONFIG"] or "")


def test_t01_the_cluster_of_a_tfjob_includes_the_evaluator() -> None:
    stage = V1Stage(TENSORFLOW, {"PS": 1, "Worker": 2, "Evaluator": 1})
    stage.play()
    assert read_config(stage, "a-worker-1") == {
        "cluster": {
            "evaluator": ["a-evaluator-0.default.svc:2222"],
            "ps": ["a-ps-0.default.svc:2222"],
            "worker": ["a-worker-0.default.svc:2222", "a-worker-1.default.svc:2222"],
        },
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }


def test_t02_a_dynamic_worker_knows_itself_and_the_parameter_servers() -> None:
    stage = V1Stage(TENSORFLOW, {"PS": 2, "Worker": 2}, enableDynamicWorker=True)
    stage.play()
    servers = [f"a-ps-{index}.default.svc:2222" for index in range(2)]
    assert read_config(stage, "a-worker-1")["cluster"] == {
        "worker": {"1": "a-worker-1.default.svc:2222"},
        "ps": servers,
    }
    assert read_config(stage, "a-ps-1")["cluster"] == {"worker": {}, "ps": servers[1:]}


@pytest.mark.parametrize(
    ("replicas", "distributed"),
    [({"Worker": 1}, False), ({"Worker": 1, "PS": 1}, True), ({"PS": 1}, False), ({"Chief": 1, "Worker": 1}, True)],
)
def test_t03_only_a_job_of_several_pods_has_a_cluster(replicas: dict[str, int], distributed: bool) -> None:
    stage = V1Stage(TENSORFLOW, replicas)
    stage.play()
    assert all(("TF_CONFIG" in read_variables(pod)) is distributed for pod in stage.world.list(PODS))


@pytest.mark.parametrize(
    ("replicas", "phases", "ends", "policy"),
    [
        ({"Chief": 1}, {"chief-0": 0}, "Succeeded", ""),
        ({"Chief": 1}, {}, "Running", ""),
        ({"Chief": 1}, {"chief-0": 1}, "Failed", ""),
        ({"Worker": 1}, {"worker-0": 1}, "Failed", ""),
        ({"Worker": 4}, {"worker-1": 0, "worker-2": 0}, "Running", ""),
        ({"Worker": 4}, {"worker-1": 1, "worker-2": 1}, "Failed", ""),
        ({"Worker": 4}, {"worker-0": 0}, "Succeeded", ""),
        ({"Worker": 2}, {"worker-0": 0}, "Running", "AllWorkers"),
        ({"Worker": 2}, {"worker-0": 0, "worker-1": 0}, "Succeeded", "AllWorkers"),
        ({"Worker": 2}, {"worker-0": 0, "worker-1": 1}, "Failed", "AllWorkers"),
        ({"PS": 2, "Worker": 2}, {"ps-0": 1}, "Failed", ""),
        ({"Chief": 1, "Worker": 1}, {"chief-0": 1}, "Failed", ""),
        ({"Chief": 1, "Worker": 2}, {"chief-0": 0, "worker-0": 1, "worker-1": 1}, "Succeeded", ""),
        ({"Chief": 1, "Worker": 2}, {"worker-0": 1, "worker-1": 1}, "Failed", ""),
    ],
)
def test_t04_t07_who_decides_about_a_tfjob(
    replicas: dict[str, int], phases: dict[str, int], ends: str, policy: str
) -> None:
    stage = V1Stage(TENSORFLOW, replicas, "Never", successPolicy=policy)
    stage.start()
    for name, code in phases.items():
        stage.set_phase(f"a-{name}", "Failed" if code else "Succeeded", code)
    stage.play()
    assert stage.conditions[-1] == (ends, "True")


def test_t05_exit_codes_of_a_tfjob() -> None:
    stage = V1Stage(TENSORFLOW, {"Worker": 2}, "ExitCode")
    stage.start()
    stage.set_phase("a-worker-1", "Failed", 130)
    assert [type(write).__name__ for write in (*stage.step().writes, *stage.step().writes)] == ["Delete"]
    stage.start()
    stage.set_phase("a-worker-1", "Failed", 1)
    stage.play()
    assert stage.status["conditions"][-1]["message"] == 'job "a" is failing because "Worker" replica(s) failed.'


def test_t06_pods_that_ended_stay_and_missing_ones_are_created() -> None:
    stage = V1Stage(TENSORFLOW, {"PS": 2, "Worker": 4})
    stage.start()
    stage.set_phase("a-worker-3", "Succeeded", 0)
    del stage.world.objects[PODS, "default", "a-ps-1"]
    kept = {name: stage.get_pod(name)["metadata"]["uid"] for name in stage.pods}
    stage.play()
    assert stage.pods == ["a-ps-0", "a-ps-1", *(f"a-worker-{index}" for index in range(4))]
    assert all(stage.get_pod(name)["metadata"]["uid"] == uid for name, uid in kept.items())


def test_t08_a_port_of_the_user_is_kept_and_the_case_of_a_type_does_not_matter() -> None:
    stage = V1Stage(TENSORFLOW, {"WORKER": 1})
    own = {"name": "tensorflow", "image": "i", "ports": [{"name": "tfjob-port", "containerPort": 7}]}
    stage.change(tfReplicaSpecs={"WORKER": {"template": {"spec": {"containers": [own]}}}})
    stage.play()
    assert stage.get_pod("a-worker-0")["spec"]["containers"][0]["ports"] == own["ports"]


@pytest.mark.parametrize(
    ("resource", "found"), [("nvidia.com/gpu", True), ("vendor.com/gpu", True), ("vendor.com/fpga", False)]
)
def test_m01_a_launcher_with_gpus(resource: str, found: bool) -> None:
    assert is_gpu_launcher({"containers": [{"resources": {"limits": {resource: 1}}}]}) is found


@pytest.mark.parametrize(("phase", "code", "count"), [("Succeeded", 0, "succeeded"), ("Failed", 1, "failed")])
def test_m02_the_launcher_decides_and_workers_are_no_longer_counted(phase: str, code: int, count: str) -> None:
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 2}, "Never")
    stage.start()
    stage.set_phase("a-launcher", phase, code)
    stage.play()
    assert stage.status["replicaStatuses"] == {"Launcher": {count: 1}, "Worker": {}}
    assert stage.conditions[-1] == (phase, "True")


def test_m03_the_launcher_does_not_wait_for_its_workers() -> None:
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 2})
    stage.play()
    assert stage.pods == ["a-launcher", "a-worker-0", "a-worker-1"]
    stage.set_phase("a-launcher", "Running")
    stage.play()
    assert stage.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {}}
    assert stage.conditions[-1] == ("Running", "True")
    stage.set_phase("a-worker-1", "Running")
    stage.play()
    assert stage.status["replicaStatuses"]["Worker"] == {"active": 1}
    assert stage.world.get(CONFIG_MAPS, "a-config")["data"]["discover_hosts.sh"] == "#!/bin/sh\necho a-worker-1:1"


def test_m04_the_launcher_uses_the_users_service_account() -> None:
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 1})
    stage.world.add(SERVICE_ACCOUNTS, {"metadata": {"name": "mine", "namespace": "default"}})
    stage.change(mpiReplicaSpecs={"Launcher": {"template": {"spec": {"serviceAccountName": "mine"}}}})
    stage.play()
    assert stage.get_pod("a-launcher")["spec"]["serviceAccountName"] == "mine"
    assert [subject["name"] for subject in stage.world.get(ROLE_BINDINGS, "a-launcher")["subjects"]] == ["mine"]


@pytest.mark.parametrize(
    ("gvr", "name"),
    [
        (PODS, "a-launcher"),
        (PODS, "a-worker-0"),
        (CONFIG_MAPS, "a-config"),
        (ROLES, "a-launcher"),
        (ROLE_BINDINGS, "a-launcher"),
    ],
    ids=["launcher", "worker", "config map", "role", "role binding"],
)
def test_m05_an_object_of_somebody_else_stops_the_job_and_is_not_changed(gvr: Any, name: str) -> None:
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 1})
    before = stage.world.add(gvr, {"metadata": {"name": name, "namespace": "default"}})
    stage.play()
    assert stage.status["waiting"]["reason"] == "NameConflict"
    assert name in stage.status["waiting"]["message"]
    assert stage.world.get(gvr, name) == before


def test_m06_variables_of_the_user_are_kept() -> None:
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 1})
    own = {"name": "mpi", "image": "i", "env": [{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "ssh"}]}
    stage.change(mpiReplicaSpecs={"Launcher": {"template": {"spec": {"containers": [own]}}}})
    stage.play()
    names = [entry["name"] for entry in stage.get_pod("a-launcher")["spec"]["containers"][0]["env"]]
    assert names.count("I_MPI_HYDRA_BOOTSTRAP") == 1
    variables = read_variables(stage.get_pod("a-launcher"))
    assert variables["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"
    assert variables["I_MPI_HYDRA_BOOTSTRAP_EXEC"] == "/etc/mpi/kubexec.sh"


def test_q12_a_launcher_with_exit_codes_is_replaced_or_ends_the_job() -> None:
    """Upstream says that it restarts, and never does."""
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 1}, "ExitCode")
    stage.start()
    before = stage.get_pod("a-launcher")["metadata"]["uid"]
    stage.set_phase("a-launcher", "Failed", 137)
    stage.play()
    assert stage.status["restarts"] == 1 and stage.get_pod("a-launcher")["metadata"]["uid"] != before
    assert stage.pods == ["a-launcher", "a-worker-0"]
    stage.start()
    stage.set_phase("a-launcher", "Failed", 1)
    stage.play()
    assert stage.conditions[-1] == ("Failed", "True") and stage.status["completionTime"]


def test_m07_a_missing_job_is_nothing_and_workers_are_optional() -> None:
    stage = V1Stage(MPI, {"Launcher": 1, "Worker": 1})
    stage.change(mpiReplicaSpecs={"Worker": {"replicas": None}})
    stage.play()
    assert stage.pods == ["a-launcher"], "without a number there are no workers"
    gone = V1Stage(MPI, {"Launcher": 1})
    del gone.world.objects[MPI.gvr, "default", "a"]
    assert gone.step().all_writes == ()


@pytest.mark.parametrize("replicas", [{"Launcher": 1}, {"Launcher": 1, "Worker": 0}], ids=["no type", "none"])
def test_a_launcher_without_workers_may_execute_commands_nowhere(replicas: dict[str, int]) -> None:
    stage = V1Stage(MPI, replicas)
    stage.play()
    resources = [rule["resources"] for rule in stage.world.get(ROLES, "a-launcher")["rules"]]
    assert resources == [["pods"]], "a rule without names applies to every Pod"


def test_d01_the_first_paddle_pod_is_the_server() -> None:
    stage = V1Stage(PADDLE, {"Master": 1, "Worker": 1})
    stage.start()
    assert read_variables(stage.get_pod("a-master-0"))["PADDLE_MASTER"] == "$(POD_IP_DUMMY):36543"
    assert read_variables(stage.get_pod("a-worker-0"))["PADDLE_MASTER"] == "a-master-0:36543"
    stage.set_phase("a-master-0", "Succeeded", 0)
    stage.play()
    assert stage.conditions[-1] == ("Succeeded", "True")


def test_j01_the_variables_of_a_jaxjob() -> None:
    stage = V1Stage(JAX, {"Worker": 2})
    stage.play()
    assert read_variables(stage.get_pod("a-worker-1")) == {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_PORT": "6666",
        "COORDINATOR_ADDRESS": "a-worker-0",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }
