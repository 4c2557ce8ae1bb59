"""The quick start of the README is run as it stands there, in English and in Korean."""

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

_RUN = ("trainmaster ", "kubectl ", "export KUBECONFIG")


def read_quick_start(page: str, heading: str) -> str:
    section = re.search(rf"## {heading}\n(.*?)\n## ", (ROOT / page).read_text(), re.DOTALL)
    assert section is not None
    blocks = re.findall(r"```\n(.*?)```", section[1], re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(_RUN)]
    assert len(lines) > 7
    return "\n".join(["set -e", *lines])


@pytest.mark.parametrize(
    ("page", "heading"),
    [pytest.param("README.md", "Quick start", id="English"), pytest.param("README.ko.md", "빠른 시작", id="Korean")],
)
def test_the_quick_start_works_as_written(
    person: Person, kubectl_path: Path, tmp_path: Path, page: str, heading: str
) -> None:
    path = f"{Path(sys.executable).parent}:{kubectl_path.parent}:{os.environ['PATH']}"
    environ = clean_environ({"TRAINMASTER_HOME": str(person.home), "HOME": str(tmp_path), "PATH": path})
    done = subprocess.run(
        ["bash", "-c", read_quick_start(page, heading)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loss" in done.stdout
    assert "trainjob.trainer.kubeflow.org/hello   Complete" in done.stdout
    assert "kind: TrainJob" in done.stdout
    assert person.trainmaster("status").code == 3
