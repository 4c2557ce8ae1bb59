"""docs/first-job.md and its Korean sister, as newcomers follow them: every command of the console blocks, in order, in
one shell."""

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


def read_commands(page: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", ["first-job.md", "ko/first-job.md"])
def test_the_page_works_as_written(person: Person, kubectl_path: Path, tmp_path: Path, page: str) -> None:
    commands = read_commands(page)
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
