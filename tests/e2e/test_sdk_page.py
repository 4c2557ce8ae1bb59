"""What people copy: docs/sdk.md to the letter, the examples, and the notebook, on a running server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.house.tree import ROOT
from tests.support.sdk import Sdk, find_sdk_or_skip
from tests.support.server import ServerProcess
from tools.notebook import NOTEBOOK, run_in_sdk

pytestmark = pytest.mark.e2e


def read_blocks() -> list[str]:
    """Those of the Kubeflow SDK; `test_training_sdk.py` runs that of the older one."""
    page = (ROOT / "docs" / "sdk.md").read_text().partition("## The SDK of training-operator")[0]
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_page_works_from_top_to_bottom(sdk: Sdk) -> None:
    blocks = read_blocks()
    assert len(blocks) > 8
    for number, block in enumerate(blocks):
        out = sdk.run(f"page_{number}", block, "page")
        # `print(x)  # y` says what is printed.
        for want in re.findall(r"print\(.*\)  # (.*)", block):
            assert want in out, f"{block}\nprinted:\n{out}"


def test_the_first_example_trains_and_cleans_up(sdk: Sdk) -> None:
    out = sdk.run("first_job", (ROOT / "examples" / "sdk" / "first_job.py").read_text())
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("node 0 step")]
    assert len(losses) == 8 and losses[-1] < losses[0] / 10, out
    assert out.splitlines()[-1] == "Complete ['node-0', 'node-1']"


def describe(notebook: Path) -> list[tuple[str, str, list[Any]]]:
    """Each cell: its kind, its source, and what came out, but for the numbers."""
    found = []
    for cell in json.loads(notebook.read_text())["cells"]:
        outputs = [
            (output["output_type"], re.sub(r"\d+", "0", "".join(output.get("text", ()))))
            for output in cell.get("outputs", ())
        ]
        found.append((cell["cell_type"], "".join(cell["source"]), outputs))
    return found


def test_the_notebook_still_says_what_it_shows(sdk_server: ServerProcess, tmp_path: Path) -> None:
    done = run_in_sdk(find_sdk_or_skip(), sdk_server.home, NOTEBOOK, tmp_path / "again.ipynb")
    assert done.returncode == 0, done.stderr
    kept = describe(NOTEBOOK)
    assert describe(tmp_path / "again.ipynb") == kept
    assert any("loss" in text for _, _, outputs in kept for _, text in outputs), "kept without outputs"
