"""From a script to a runtime and the command that starts it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.cli.launch import programs
from trainmaster.cli.launch.run_options import RunOptionError

pytestmark = pytest.mark.unit

TORCH: dict[str, Any] = {"torch": {}}
MPI: dict[str, Any] = {"mpi": {"numProcPerNode": 1}}


@pytest.mark.parametrize(
    ("source", "framework", "runtime"),
    [
        ("import torch.nn as nn", "torch", "torch-distributed"),
        ("from torch import nn", "torch", "torch-distributed"),
        ("def main():\n    import transformers", "torch", "torch-distributed"),
        ("import jax.numpy as jnp", "jax", "jax-distributed"),
        ("import jax, transformers", "jax", "jax-distributed"),
        ("import jax, torch", "torch", "torch-distributed"),
        ("import xgboost", "xgboost", "xgboost-distributed"),
        ("import numpy", "", "torch-distributed"),
        ("import torchless", "", "torch-distributed"),
        ("this is no Python", "", "torch-distributed"),
    ],
)
def test_what_a_script_imports_decides_the_runtime(source: str, framework: str, runtime: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert programs.find_framework(script) == framework
    assert programs.choose_runtime(framework) == runtime


def test_what_local_modules_import_counts_too_and_cycles_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import model")
    (tmp_path / "model.py").write_text("import train, layers")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("import torch")
    assert programs.find_framework(tmp_path / "train.py") == "torch"


def test_a_script_that_is_not_here_imports_nothing(tmp_path: Path) -> None:
    assert programs.find_framework(tmp_path / "in-the-image.py") == ""


@pytest.mark.parametrize(
    ("framework", "policy", "want"),
    [
        pytest.param("torch", TORCH, ("torchrun", "t.py", "-x"), id="torch under torchrun"),
        pytest.param("", TORCH, ("python", "t.py", "-x"), id="plain Python with torch's variables"),
        pytest.param("jax", {"jax": {}}, ("python", "t.py", "-x"), id="JAX"),
        pytest.param("torch", {}, ("python", "t.py", "-x"), id="the plain runtime has no torchrun's variables"),
        pytest.param("torch", MPI, ("mpirun", "python", "t.py", "-x"), id="MPI"),
    ],
)
def test_the_runtime_decides_what_starts_a_script(framework: str, policy: Any, want: tuple[str, ...]) -> None:
    assert programs.build_command("t.py", ["-x"], framework, policy) == want


def test_several_processes_need_a_launcher() -> None:
    programs.check_processes("2", ("torchrun", "t.py"), "torch-distributed", TORCH)
    programs.check_processes("2", ("mpirun", "python"), "mpi", MPI)
    programs.check_processes("1", ("python", "t.py"), "plain", {})
    for command, policy in ((("python", "t.py"), TORCH), (("torchrun", "t.py"), {})):
        with pytest.raises(RunOptionError, match="--nproc 2"):
            programs.check_processes("2", command, "some", policy)
