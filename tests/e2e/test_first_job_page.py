"""docs/first-job.md, as a newcomer follows it: every command of its console blocks, in order, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.shell import Person
from tests.house.tree import ROOT
from tests.support.server import clean_environ

pytestmark = pytest.mark.e2e

_FAILS = "--name broken"
"""The page breaks a job on purpose; its exit code is the job's."""


def read_commands() -> list[str]:
    page = (ROOT / "docs" / "first-job.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_page_works_as_written(person: Person, kubectl_path: Path, tmp_path: Path) -> None:
    commands = read_commands()
    assert len(commands) > 12
    script = "\n".join(f"{line} || [ $? = 1 ]" if _FAILS in line else line for line in commands)
    path = f"{Path(sys.executable).parent}:{kubectl_path.parent}:{os.environ['PATH']}"
    environ = clean_environ({"TRAINMASTER_HOME": str(person.home), "HOME": str(tmp_path), "PATH": path})
    command = ["bash", "-ec", script]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=110)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "loss" in done.stdout
    assert "no data" in done.stdout
    assert "rank" in done.stderr
    assert "later" in said
    assert person.trainmaster("status").code == 3
