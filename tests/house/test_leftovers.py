"""The fixture that fails a test which leaves something behind: it must see what it claims to see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

pytestmark = pytest.mark.unit

LEAKY = """
import asyncio, subprocess, pytest
pytestmark = pytest.mark.unit
kept = []

def test_tidy(tmp_path):
    (tmp_path / "file").write_text("x")
    subprocess.run(["true"], check=True)
    asyncio.run(asyncio.sleep(0))

def test_task():
    async def main():
        kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(60)))
        await asyncio.sleep(0)
    asyncio.run(main())

def test_child():
    kept.append(subprocess.Popen(["sleep", "0.2"]))

def test_file(tmp_path):
    kept.append(open(tmp_path / "file", "w"))
"""


def run_pytest(file: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", "pyproject.toml", "--rootdir=."]
    command += ["-p", "no:cacheprovider", "-W", "ignore", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_leftovers_fail_the_test_that_left_them(tmp_path: Path) -> None:
    file = tmp_path / "test_leaky.py"
    file.write_text(LEAKY)
    out = run_pytest(file)
    assert "4 passed, 3 errors" in out
    assert "task: <Task" in out
    assert "child process" in out
    assert "open file: " in out
    assert "ERROR at teardown of test_tidy" not in out


def test_a_test_without_a_tier_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "test_bare.py"
    file.write_text("def test_nothing():\n    pass\n")
    assert "has no tier marker" in run_pytest(file)
