"""What `run` checks before it submits: what stands in for an image, and whether its Python can run the script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.unit.jobs.compose.test_compose import load
from trainmaster.api.image_rules import KEY, NAME, NAMESPACE
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.cli.launch.environments import JobEnvironment, check_syntax, find_environment
from trainmaster.cli.launch.programs import TrainingProgram
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

RULES = """
environments: {old: {path: /opt/old}, tables: {packages: [pandas]}}
rules:
  - {image: "team/*", environment: old}
  - {image: "science", environment: tables, packages: [tqdm]}
"""


def find(image: str, rules: str = "", runtime: Object | None = None) -> JobEnvironment | None:
    async def work() -> JobEnvironment | None:
        async with running_cluster() as cluster:
            if rules:
                obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {KEY: rules}}
                await cluster.client.create(CONFIG_MAPS, obj, NAMESPACE)
            return await find_environment(cluster.client, runtime or load("torch-distributed"), image, "/opt/own")

    return run_virtual(work())


@pytest.mark.parametrize(
    ("image", "rules", "want"),
    [
        ("", "", JobEnvironment("/opt/own")),
        ("", RULES, JobEnvironment("/opt/own")),
        ("mine:1", RULES, JobEnvironment("/opt/own")),
        ("team/train:2", RULES, JobEnvironment("/opt/old")),
        ("science", RULES, JobEnvironment("/opt/own", ("pandas", "tqdm"))),
        ("mine:1", "strict: true", None),
        ("pytorch/pytorch", "strict: true", JobEnvironment("/opt/own")),
        ("mine:1", "frob: 1", None),
    ],
)
def test_the_environment_is_the_one_of_the_rules(image: str, rules: str, want: JobEnvironment | None) -> None:
    assert find(image, rules) == want


def test_a_runtime_may_name_an_environment() -> None:
    runtime = load("torch-distributed")
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {"trainmaster.dev/environment": "old"}}
    assert find("", RULES, runtime) == JobEnvironment("/opt/old")
    assert find("", "", runtime) is None


def test_the_sentence_about_an_image_names_what_runs_instead() -> None:
    want = "image science is not pulled: the Python environment /opt/own with pandas, tqdm runs in its place"
    assert JobEnvironment("/opt/own", ("pandas", "tqdm")).describe("science") == want


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("print('a'\n", r"src/train\.py is not a Python 3\.\d+ program at line 1: '\(' was never closed"),
        ("import os\nreturn 1\n", r"at line 2: 'return' outside function"),
        ("# coding: nonsense\n", r"unknown encoding"),
        ("a = 1\0\n", r"null bytes"),
    ],
)
def test_a_script_that_python_cannot_run_is_refused_with_file_and_line(tmp_path: Path, code: str, want: str) -> None:
    with pytest.raises(RunOptionError, match=want):
        check_syntax(write(tmp_path, "src/train.py", code.encode()), sys.prefix)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("train.py", b"print('\\d')\nif 1 is 1: pass\n"),
        ("train.py", "# coding: latin-1\nprint('gr\xfcn')\n".encode("latin-1")),
        ("train.pyz", b"PK\x03\x04\0("),
    ],
)
def test_what_python_runs_is_let_in_without_a_word(
    tmp_path: Path, name: str, code: bytes, recwarn: pytest.WarningsRecorder
) -> None:
    check_syntax(write(tmp_path, name, code), sys.prefix)
    assert not list(recwarn)


def test_the_python_that_runs_the_job_decides(tmp_path: Path) -> None:
    """Its version is not ours, so its own interpreter is asked; here a program that refuses everything."""
    other = tmp_path / "other"
    (other / "lib/python3.99/site-packages").mkdir(parents=True)
    (other / "bin").mkdir()
    python = other / "bin/python3"
    python.write_text("#!/bin/sh\nprintf '7 no such thing'\nexit 3\n")
    os.chmod(python, 0o755)
    program = write(tmp_path, "train.py", b"fine = True\n")
    with pytest.raises(RunOptionError, match=r"train\.py is not a Python 3\.99 program at line 7: no such thing"):
        check_syntax(program, str(other))
    python.write_text("#!/bin/sh\nexit 0\n")
    check_syntax(write(tmp_path, "train.py", b"def new syntax\n"), str(other))


def write(root: Path, name: str, code: bytes) -> TrainingProgram:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(code)
    return TrainingProgram(name, [], root, "")
