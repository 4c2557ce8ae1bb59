"""`trainmaster promote`: from a server on this machine to a real control plane with upstream's Trainer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster import KubeCluster
from tests.support.server import ServerProcess, clean_environ, command, start_server

pytestmark = pytest.mark.kube


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("promote") / "home") as server:
        yield server


def call(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environ({"TRAINMASTER_HOME": str(home)})
    return subprocess.run(command(*arguments), env=environ, capture_output=True, text=True, timeout=90)


def run_here(home: Path, project: Path, name: str, *options: str) -> None:
    project.mkdir()
    (project / "train.py").write_text("print('trained')\n")
    done = call(home, "run", "--name", name, "--code", str(project), *options, "train.py")
    assert done.returncode == 0, done.stderr


def test_a_job_with_its_code_runs_there_too(here: ServerProcess, trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    run_here(here.home, tmp_path / "project", "moving", "--ttl", "1h", "--max-restarts", "6")
    to = ["promote", "moving", "--kubeconfig", str(trainer_cluster.kubeconfig)]
    asked = call(here.home, *to, "-o", "json")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    answer = json.loads(asked.stdout)
    assert answer["submitted"] is False
    texts = [one["text"] for one in answer["findings"]]
    assert any(text.startswith("spec.ttlSecondsAfterFinished is no field there") for text in texts)
    assert any(text.startswith("its code is sent as the ConfigMap moving-code-") for text in texts)
    assert any("ran in its place" in text for text in texts)
    assert not trainer_cluster.kubectl("get", "trainjobs", "-o", "name"), "nothing was submitted"

    done = call(here.home, *to, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "submitted; `trainmaster watch moving" in done.stderr
    trainer_cluster.kubectl("wait", "--for=condition=Complete", "trainjob/moving", "--timeout=60s")
    config_map = trainer_cluster.kubectl("get", "configmaps", "-l", "trainmaster.dev/code-of=moving", "-o", "json")
    (code,) = json.loads(config_map)["items"]
    assert code["metadata"]["ownerReferences"][0]["name"] == "moving"
    ours = json.loads(call(here.home, "get", "moving", "-o", "json").stdout)
    notes = code["metadata"]["annotations"]
    assert notes["trainmaster.dev/code-digest"] == ours["metadata"]["annotations"]["trainmaster.dev/code-digest"]

    again = call(here.home, *to, "--yes")
    assert again.returncode == 1
    assert "in the way" in again.stdout and "already exists" in again.stdout
    trainer_cluster.kubectl("delete", "trainjob", "moving")


def test_what_a_dry_run_prints_is_taken_strictly(
    here: ServerProcess, trainer_cluster: KubeCluster, tmp_path: Path
) -> None:
    run_here(here.home, tmp_path / "project", "printed", "--max-restarts", "1")
    to = ["promote", "printed", "--kubeconfig", str(trainer_cluster.kubeconfig), "--name", "other"]
    printed = call(here.home, *to, "--dry-run")
    assert printed.returncode == 0, printed.stderr
    trainer_cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=printed.stdout)
    trainer_cluster.kubectl("wait", "--for=condition=Complete", "trainjob/other", "--timeout=60s")
    trainer_cluster.kubectl("delete", "trainjob", "other")
    trainer_cluster.kubectl("delete", "configmaps", "-l", "trainmaster.dev/code-of=other")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["promote", "x"], 2, "where to? Name the cluster with --context or --kubeconfig"),
        (["promote", "x", "--kubeconfig", "OWN"], 2, "is the server of this machine"),
        (["promote", "x", "--kubeconfig", "THERE"], 7, 'there is no TrainJob "x" in namespace default'),
        (["promote", "x", "--kubeconfig", "nowhere"], 1, "cannot read the kubeconfig nowhere"),
    ],
    ids=["nowhere named", "itself", "no such job", "no such file"],
)
def test_a_wrong_command_line_is_one_sentence(
    here: ServerProcess, trainer_cluster: KubeCluster, arguments: list[str], code: int, text: str
) -> None:
    places = {"OWN": str(here.kubeconfig), "THERE": str(trainer_cluster.kubeconfig)}
    done = call(here.home, *(places.get(word, word) for word in arguments))
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert text in done.stderr
