"""The workshop of `examples/v1`, with real kubectl and real frameworks: what its users type, and what they see."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.training import EXAMPLES, Lab, training
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

LOSS = re.compile(r"step +\d+ loss ([0-9.]+)")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("training-v1") / "home") as lab:
        yield lab


def kubectl(lab: Lab, *words: str) -> str:
    """What it prints, once it ends well."""
    command = ["kubectl", "--kubeconfig", str(lab.server.kubeconfig), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=lab.limit)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_workshop_runs_with_its_own_commands(lab: Lab) -> None:
    assert "pytorchjob.kubeflow.org/pytorch-dist-job created" in kubectl(
        lab, "apply", "-k", str(EXAMPLES / "v1/overlay")
    )
    log = kubectl(lab, "logs", "-n", "pytorch", "-f", "pytorch-dist-job-master-0", "--pod-running-timeout=120s")
    assert [f"rank {rank} of 3" for rank in (0,) if f"rank {rank} of 3 has joined" not in log] == []
    losses = [float(found) for found in LOSS.findall(log)]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2, log
    kubectl(lab, "wait", "-n", "pytorch", "--for=condition=Succeeded", "pytorchjob/pytorch-dist-job", "--timeout=120s")
    listed = kubectl(lab, "get", "-n", "pytorch", "pytorchjob")
    assert re.search(r"^pytorch-dist-job +Succeeded +\S+$", listed, re.MULTILINE), listed
    described = kubectl(lab, "describe", "-n", "pytorch", "pytorchjob", "pytorch-dist-job")
    for text in ("PyTorchJob pytorch-dist-job is successfully completed.", "Created pod: pytorch-dist-job-worker-1"):
        assert text in described
    pods = kubectl(lab, "get", "-n", "pytorch", "pods", "-o", "name").split()
    assert pods == [f"pod/pytorch-dist-job-{name}" for name in ("master-0", "worker-0", "worker-1")]
    for worker in (0, 1):
        assert f"rank {worker + 1} of 3 has joined" in kubectl(
            lab, "logs", "-n", "pytorch", f"pytorch-dist-job-worker-{worker}", "-c", "pytorch"
        )
    kubectl(lab, "delete", "-n", "pytorch", "pytorchjob", "pytorch-dist-job")
    lab.wait_until(lambda: not kubectl(lab, "get", "-n", "pytorch", "pods", "-o", "name"), "its Pods are gone")
    kubectl(lab, "delete", "-k", str(EXAMPLES / "v1/overlay"), "--ignore-not-found")


def test_a_converted_job_trains_as_well(lab: Lab, tmp_path: Path) -> None:
    out = io.StringIO()
    asked = ("convert", "-f", str(EXAMPLES / "v1/base/pytorch-dist-job.yaml"))
    assert main(asked, CommandContext({}, out, io.StringIO())) == 0
    converted = tmp_path / "converted.yaml"
    converted.write_text(out.getvalue())
    program = EXAMPLES / "v1/base/train.py"
    kubectl(lab, "create", "configmap", "code", f"--from-file={program}")
    kubectl(lab, "apply", "-f", str(converted))
    ended = lab.wait_for_end("pytorch-dist-job")
    text = lab.read_logs("pytorch-dist-job")
    assert ended["type"] == "Complete", text
    assert "rank 1 of 2 has joined" in text
    losses = [float(found) for found in LOSS.findall(text)]
    assert losses[-1] < losses[0] / 2, text
    lab.remove("pytorch-dist-job")


def test_mpirun_of_a_suspended_and_resumed_mpijob_starts_its_ranks_in_the_workers(lab: Lab) -> None:
    kubectl(lab, "create", "configmap", "mpi", f"--from-file={EXAMPLES / 'mpi/train.py'}")
    kubectl(lab, "apply", "-f", str(EXAMPLES / "v1/mpijob.yaml"))
    for suspended in ("true", "false"):
        patch = f'{{"spec": {{"runPolicy": {{"suspend": {suspended}}}}}}}'
        kubectl(lab, "patch", "mpijob", "mpi-v1", "--type=merge", "-p", patch)
        if suspended == "true":
            kubectl(lab, "wait", "--for=condition=Suspended", "mpijob/mpi-v1", "--timeout=60s")
    try:
        kubectl(lab, "wait", "--for=condition=Succeeded", "mpijob/mpi-v1", "--timeout=120s")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl(lab, 'logs', 'mpi-v1-launcher')}") from None
    log = kubectl(lab, "logs", "mpi-v1-launcher")
    assert "rank 0 of 2 on mpi-v1-worker-0" in log and "rank 1 of 2 on mpi-v1-worker-1" in log
    losses = [float(found) for found in LOSS.findall(log)]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2, log
    kubectl(lab, "delete", "mpijob/mpi-v1", "configmap/mpi")
    lab.wait_until(lambda: not lab.list_v1_pods("mpi-v1"), "its Pods are gone")


def check_example(lab: Lab, folder: str, job: str, lines: Mapping[str, str]) -> None:
    """It succeeds, each Pod has printed its line, the loss fell, and nothing of it is left after `delete -k`."""
    name = job.partition("/")[2]
    kubectl(lab, "apply", "-k", str(EXAMPLES / "v1" / folder))
    try:
        kubectl(lab, "wait", "--for=condition=Succeeded", job, f"--timeout={lab.limit:.0f}s")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl(lab, 'describe', job)}\n{read_v1_logs(lab, name)}") from None
    logs = {pod: kubectl(lab, "logs", pod) for pod in lines}
    assert [pod for pod, line in lines.items() if line not in logs[pod]] == [], logs
    losses = [float(found) for log in logs.values() for found in LOSS.findall(log)]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2, logs
    remove_example(lab, folder, name)


def read_v1_logs(lab: Lab, name: str) -> str:
    """Of all Pods that the job has at the moment."""
    return "".join(lab.read_log(pod, pod["spec"]["containers"][0]["name"]) for pod in lab.list_v1_pods(name))


def remove_example(lab: Lab, folder: str, name: str) -> None:
    kubectl(lab, "delete", "-k", str(EXAMPLES / "v1" / folder))
    lab.wait_until(lambda: not lab.list_v1_pods(name), "its Pods are gone")


def test_replicas_of_an_xgboostjob_meet_at_the_tracker_of_the_master(lab: Lab) -> None:
    names = {"master-0": 0, "worker-0": 1, "worker-1": 2}
    lines = {f"xgboost-v1-{name}": f"replica {rank} of 3 has joined" for name, rank in names.items()}
    check_example(lab, "xgboost", "xgboostjob/xgboost-v1", lines)


def test_workers_of_a_jaxjob_meet_at_the_coordinator(lab: Lab) -> None:
    lines = {f"jax-v1-worker-{rank}": f"process {rank} of 2 sees 2 devices" for rank in (0, 1)}
    check_example(lab, "jax", "jaxjob/jax-v1", lines)
