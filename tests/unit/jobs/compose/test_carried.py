"""Code that travels in a ConfigMap: its objects, and what the command does, run here as a container runs it."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.jobs.compose.test_compose import load, make_request
from trainmaster.api.meta import Object
from trainmaster.api.training.steps import find_container, get_template_spec, list_jobs
from trainmaster.bundles.archives import build_archive
from trainmaster.cli.launch.manifests import SHAPE
from trainmaster.jobs.compose.carried import carry, wrap
from trainmaster.jobs.compose.trainjob import ComposedJob, compose

pytestmark = pytest.mark.unit

PROGRAM = 'import os, sys\nprint(os.getcwd(), *sys.argv[1:], os.environ["PYTHONUNBUFFERED"])\n'


class Container:
    """The mounts of one, in a directory."""

    def __init__(self, root: Path) -> None:
        source = root / "source"
        (source / "pkg").mkdir(parents=True)
        (source / "train.py").write_text(PROGRAM)
        (source / "pkg" / "tool").write_text("#!/bin/sh\nexit 7\n")
        (source / "pkg" / "tool").chmod(0o755)
        os.symlink("pkg/tool", source / "tool")
        self.code = root / "code"
        self.code.mkdir()
        self.packed = root / "code.tar.gz"
        self.packed.write_bytes(build_archive(source, source))
        self.programs = root / "bin"
        self.programs.mkdir()

    def install(self, *names: str) -> None:
        """The image has nothing else."""
        for name in names:
            found = sys.executable if name.startswith("python") else shutil.which(name)
            assert found is not None
            os.symlink(found, self.programs / name)

    def run(self, *command: str, enters: bool = True, path: str = "") -> subprocess.CompletedProcess[str]:
        words = list(wrap(command, enters=enters))
        words[4:6] = [str(self.code), str(self.packed)]
        path = path or os.environ["PATH"]
        return subprocess.run(words, env={"PATH": path}, cwd=self.programs, capture_output=True, text=True, timeout=30)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_the_program_starts_in_its_code_with_its_own_words(container: Container) -> None:
    done = container.run(sys.executable, "train.py", "a b", "$(ls)", "'", "--")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{container.code} a b $(ls) ' -- 1\n"
    assert sorted(path.name for path in container.code.iterdir()) == ["pkg", "tool", "train.py"]
    assert (container.code / "pkg" / "tool").stat().st_mode & 0o777 == 0o755
    assert container.run("./tool").returncode == 7, "its exit code is the program's"


def test_a_container_with_a_directory_of_its_own_starts_there(container: Container) -> None:
    done = container.run("pwd", enters=False)
    assert done.stdout == f"{container.programs}\n"
    assert (container.code / "train.py").exists()


@pytest.mark.parametrize("image", [["tar", "gzip"], ["python3"], ["python"]], ids=" and ".join)
def test_an_image_needs_tar_with_gzip_or_python(container: Container, image: list[str]) -> None:
    container.install("sh", "ls", "rm", "cat", *image)
    done = container.run("cat", "train.py", path=str(container.programs))
    assert (done.returncode, done.stdout, done.stderr) == (0, PROGRAM, "")


def test_an_image_without_either_is_told(container: Container) -> None:
    container.install("sh", "ls", "rm", "tar")
    done = container.run("ls", path=str(container.programs))
    assert done.returncode == 1
    assert "the image has neither tar with gzip nor python" in done.stderr
    assert f"the code could not be unpacked into {container.code}" in done.stderr


def test_a_second_start_in_the_same_pod_finds_the_files_as_they_were_left(container: Container) -> None:
    container.run("true")
    (container.code / "train.py").write_text("changed")
    (container.code / "checkpoint").write_text("1")
    assert container.run("cat", "train.py", "checkpoint").stdout == "changed1"


def test_a_start_that_was_cut_off_is_done_again(container: Container) -> None:
    whole = container.packed.read_bytes()
    container.packed.write_bytes(whole[: len(whole) // 2])
    cut = container.run("true")
    assert cut.returncode == 1 and "could not be unpacked" in cut.stderr
    container.packed.write_bytes(whole)
    assert container.run("cat", "train.py").stdout == PROGRAM
    assert not (container.code / ".unpacking").exists()


# The objects


def compose_carried(runtime: str, **fields: object) -> ComposedJob:
    code = carry(b"packed", "job-code-x", "job", "default", {"trainmaster.dev/code-digest": "sha256:ab"})
    return compose(make_request(code=code, **fields), load(runtime), SHAPE)


def find_node(composed: ComposedJob, job: str) -> Object:
    assert composed.runtime is not None
    found = next(one for one in list_jobs(get_template_spec(composed.runtime)) if one["name"] == job)
    container = find_container(found, "node")
    assert container is not None
    return container


def test_the_code_is_an_immutable_config_map_that_comes_first() -> None:
    composed = compose_carried("torch-distributed")
    assert composed.config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "job-code-x",
            "namespace": "default",
            "labels": {"trainmaster.dev/code-of": "job", "trainmaster.dev/ownerless": "true"},
            "annotations": {"trainmaster.dev/code-digest": "sha256:ab"},
        },
        "immutable": True,
        "binaryData": {"code.tar.gz": base64.b64encode(b"packed").decode()},
    }
    assert composed.objects == (composed.config_map, composed.trainjob), "and no other runtime"
    assert composed.trainjob["metadata"]["annotations"] == {
        "trainmaster.dev/code-digest": "sha256:ab",
        "trainmaster.dev/code-config-map": "job-code-x",
    }
    trainer = composed.trainjob["spec"]["trainer"]
    assert trainer["command"] == ["sh"]
    assert trainer["args"][2:] == ["trainmaster", "/workspace/code", "/workspace/.code/code.tar.gz", "python", "t.py"]
    assert trainer["args"][1] == wrap(())[2], "nothing in it is expanded"
    (patch,) = composed.trainjob["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"] == {
        "volumes": [
            {"name": "code", "emptyDir": {}},
            {"name": "code-packed", "configMap": {"name": "job-code-x"}},
        ],
        "containers": [
            {
                "name": "node",
                "volumeMounts": [
                    {"name": "code", "mountPath": "/workspace/code"},
                    {"name": "code-packed", "mountPath": "/workspace/.code", "readOnly": True},
                ],
            }
        ],
    }


def test_the_workers_of_mpi_unpack_it_before_they_listen() -> None:
    composed = compose_carried("deepspeed-distributed", nodes=2)
    worker = find_node(composed, "node")
    assert worker["command"] == ["sh"]
    assert worker["args"][4:] == [
        "/workspace/.code/code.tar.gz",
        "/usr/sbin/sshd",
        "-De",
        "-f",
        "/home/mpiuser/.sshd_config",
    ]
    assert "command" not in find_node(composed, "launcher"), "the TrainJob has its command"
    assert composed.objects == (composed.config_map, composed.runtime, composed.trainjob)


def test_a_runtime_says_where_the_program_starts() -> None:
    base = load("torch-distributed")
    node = find_container(list_jobs(get_template_spec(base))[0], "node")
    assert node is not None
    node["workingDir"] = "/opt/project"
    code = carry(b"", "job-code-x", "job", "default", {})
    script = compose(make_request(code=code), base, SHAPE).trainjob["spec"]["trainer"]["args"][1]
    assert script == wrap((), enters=False)[2]
