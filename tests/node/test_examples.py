"""The demo, as a newcomer runs it: a starter project trains on two nodes and its loss falls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.node

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("way", ["torch", "numpy"])
def test_the_demo_trains_a_job_and_leaves_nothing_behind(tmp_path: Path, way: str) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path), "DEMO": way}
    demo = [sys.executable, str(ROOT / "tools" / "demo.py")]
    done = subprocess.run(demo, env=environ, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Two nodes trained together: the loss fell from" in done.stdout
    assert list(tmp_path.iterdir()) == []
