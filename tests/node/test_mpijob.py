"""MPIJobs with a real Open MPI: suspended and resumed, over a SIGKILL of the server, with workers that come and go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.training import EXAMPLES, Lab, Object, training

pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

LOSS = re.compile(r"step +\d+ loss ([0-9.]+)")
CORE = "/api/v1/namespaces/default"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/mpijobs"
PROGRAM = """
import os, runpy, time
print(f"rank {os.environ['OMPI_COMM_WORLD_RANK']} waits in {os.environ['HOSTNAME']}", flush=True)
here = os.path.dirname(__file__)
while not os.path.exists(f"{here}/go"):
    time.sleep(0.1)
runpy.run_path(f"{here}/train.py", run_name="__main__")
"""
LAUNCHER = """set -e
wait_for() { until [ "$(echo $(/etc/mpi/discover_hosts.sh))" = "$1" ]; do sleep 0.1; done; echo "discovered $1"; }
$(command -v mpirun) -np 4 python /code/run.py
wait_for "two-worker-0:2 two-worker-1:2 two-worker-2:2"
wait_for "two-worker-0:2"
"""


@pytest.fixture(params=["auto", "plain"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    with training(tmp_path / "home", TRAINMASTER_NODE_ISOLATION=request.param) as lab:
        yield lab


def build_job() -> Object:
    """Two workers with two slots each. At the plain level paths are those of the launcher, so it has the code too."""
    mount = {"volumeMounts": [{"name": "code", "mountPath": "/code"}]}
    volumes = [{"name": "code", "configMap": {"name": "two"}}]

    def build(**container: object) -> Object:
        spec = {"containers": [{"name": "mpi", "image": "any", **mount, **container}], "volumes": volumes}
        return {"template": {"spec": spec}}

    launcher = build(command=["sh", "-c", LAUNCHER], env=[{"name": "OMP_NUM_THREADS", "value": "1"}])
    specs = {"Launcher": launcher, "Worker": {"replicas": 2, **build()}}
    policy = {"suspend": True, "cleanPodPolicy": "Running"}
    return {"metadata": {"name": "two"}, "spec": {"slotsPerWorker": 2, "runPolicy": policy, "mpiReplicaSpecs": specs}}


def read_log(lab: Lab) -> str:
    code, text = lab.raw.call("GET", f"{CORE}/pods/two-launcher/log")
    return str(text) if code == 200 else ""


def find_end(lab: Lab) -> str:
    conditions = lab.raw.get(f"{JOBS}/two").get("status", {}).get("conditions", [])
    ended = (entry["type"] for entry in conditions if entry["status"] == "True")
    return next((kind for kind in ended if kind in ("Succeeded", "Failed")), "")


def wait_for_line(lab: Lab, line: str) -> None:
    def look() -> bool:
        assert find_end(lab) != "Failed", read_log(lab)
        return line in read_log(lab)

    lab.wait_until(look, f"the launcher prints {line}")


def test_ranks_run_in_the_workers_and_go_on_when_the_server_is_killed(lab: Lab) -> None:
    code = {"train.py": (EXAMPLES / "mpi/train.py").read_text(), "run.py": PROGRAM}
    lab.raw.create(f"{CORE}/configmaps", {"metadata": {"name": "two"}, "data": code})
    lab.raw.create(JOBS, {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", **build_job()})
    lab.raw.merge(f"{JOBS}/two", {"spec": {"runPolicy": {"suspend": False}}})
    for rank in range(4):
        wait_for_line(lab, f"rank {rank} waits in two-worker-{rank // 2}")

    lab.kill_server()
    lab.start_server()
    lab.raw.merge(f"{CORE}/configmaps/two", {"data": {"go": ""}})
    wait_for_line(lab, "step 30")
    losses = [float(found) for found in LOSS.findall(read_log(lab))]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2, losses

    for number, line in (
        (3, "discovered two-worker-0:2 two-worker-1:2 two-worker-2:2"),
        (1, "discovered two-worker-0:2\n"),
    ):
        lab.raw.merge(f"{JOBS}/two", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": number}}}})
        wait_for_line(lab, line)
    assert lab.wait_until(lambda: find_end(lab), "the job ends") == "Succeeded"
    status = lab.raw.get(f"{CORE}/pods/two-launcher")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0
    lab.raw.delete(f"{JOBS}/two")
    lab.wait_until(lambda: not lab.raw.get(f"{CORE}/pods")["items"], "its Pods are gone")
    lab.wait_until(lambda: not list((lab.home / "gangs").iterdir()), "the directory of the gang is gone")
