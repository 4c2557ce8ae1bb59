"""`trainmaster run` beside upstream's Trainer on a real control plane: it compiles to upstream's fields."""

from __future__ import annotations

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


def test_a_run_on_a_cluster_is_followed_to_its_end(trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    kubeconfig = str(trainer_cluster.kubeconfig)
    done = run(
        tmp_path / "home", "--kubeconfig", kubeconfig, "--no-code", "--name", "there", "--nodes", "2", "--", "true"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "there is complete" in done.stderr
    assert not (tmp_path / "home").exists(), "nothing was started here"
