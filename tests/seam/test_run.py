"""`trainmaster run` beside upstream's Trainer on a real control plane: it compiles to upstream's fields."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.kube.cluster import KubeCluster
from tests.support.server import clean_environ, command

pytestmark = pytest.mark.kube

EVERYTHING = [
    "--max-restarts", "2", "--volume", "data:/data", "--secret", "keys", "--secret", "keys:/keys",
    "--secret", "keys/a=B", "--gpu", "1", "--cpu", "2", "--memory", "4Gi", "--deadline", "1h", "--env", "A=1",
    "--label", "team=ml",
    "--image", "python:3.12", "--package", "numpy",
]  # fmt: skip


def make_project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("import torch\n")
    return project


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environ({"TRAINMASTER_HOME": str(home)})
    return subprocess.run(command("run", *arguments), env=environ, capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize("options", [[], EVERYTHING], ids=["nothing asked for", "everything asked for"])
def test_what_a_dry_run_prints_is_taken_strictly_by_upstream(
    trainer_cluster: KubeCluster, tmp_path: Path, options: list[str]
) -> None:
    printed = run(
        tmp_path / "home", "--dry-run", "--no-code", "--name", "printed", "--nodes", "2", *options, "--", "true"
    )
    assert printed.returncode == 0, printed.stderr
    trainer_cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=printed.stdout)
    trainer_cluster.kubectl("delete", "trainjob", "printed")


@pytest.mark.parametrize("runtime", ["torch-distributed", "deepspeed-distributed"])
def test_code_of_a_dry_run_is_taken_strictly_by_upstream(
    trainer_cluster: KubeCluster, tmp_path: Path, runtime: str
) -> None:
    project = make_project(tmp_path)
    where = ["--kubeconfig", str(trainer_cluster.kubeconfig), "--code", str(project), "--runtime", runtime]
    printed = run(tmp_path / "home", *where, "--dry-run", "--name", "carried", "--nodes", "2", "train.py")
    assert printed.returncode == 0, printed.stderr
    assert "local:" not in printed.stdout
    trainer_cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=printed.stdout)
    found = trainer_cluster.kubectl("get", "configmaps", "-l", "trainmaster.dev/code-of=carried", "-o", "name")
    assert found.startswith("configmap/carried-code-")
    trainer_cluster.kubectl("delete", "trainjob", "carried")
    trainer_cluster.kubectl("delete", "configmaps", "-l", "trainmaster.dev/code-of=carried")


def test_the_code_of_a_run_belongs_to_its_job(trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    """At the limit: most of what fits into a ConfigMap."""
    project, home = make_project(tmp_path), tmp_path / "home"
    (project / "noise").write_bytes(random.Random(1).randbytes(890_000))
    where = ["--kubeconfig", str(trainer_cluster.kubeconfig), "--code", str(project)]
    done = run(home, *where, "--name", "carrying", "--nodes", "2", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not home.exists(), "nothing was kept here"
    shown = trainer_cluster.kubectl("get", "configmaps", "-l", "trainmaster.dev/code-of=carrying", "-o", "json")
    (config_map,) = json.loads(shown)["items"]
    assert config_map["immutable"] is True
    assert "trainmaster.dev/ownerless" not in config_map["metadata"]["labels"]
    (owner,) = config_map["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("TrainJob", "carrying")
    trainer_cluster.kubectl("delete", "trainjob", "carrying")
    name = config_map["metadata"]["name"]
    trainer_cluster.kubectl("wait", "--for=delete", f"configmap/{name}", "--timeout=60s")

    (project / "noise").write_bytes(random.Random(1).randbytes(910_000))
    refused = run(home, *where, "--name", "carrying", "train.py")
    assert refused.returncode == 243
    assert "has more than 900,000 bytes packed" in refused.stderr and refused.stderr.count("\n") == 1


def test_a_run_on_a_cluster_is_followed_to_its_end(trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    kubeconfig = str(trainer_cluster.kubeconfig)
    done = run(
        tmp_path / "home", "--kubeconfig", kubeconfig, "--no-code", "--name", "there", "--nodes", "2", "--", "true"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "there is complete" in done.stderr
    assert not (tmp_path / "home").exists(), "nothing was started here"
