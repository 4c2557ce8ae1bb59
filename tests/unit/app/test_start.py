"""What a start of the server loads before it serves: this is most of the time of a cold `trainmaster run`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.unit

# Everything has been loaded when a setting that makes no sense ends the start.
_PROGRAM = """
import dataclasses, io, json, sys
compile_one, compiled = vars(dataclasses).get("_create_fn"), []
def count(name, *source, **rest):
    compiled.append(name)
    return compile_one(name, *source, **rest)
if compile_one:
    dataclasses._create_fn = count
from trainmaster.cli.context import Context
from trainmaster.cli.main import main
compiled.clear()
said = io.StringIO()
code = main(["up", "--home", sys.argv[1]], Context({"TRAINMASTER_FAILPOINTS": "nonsense"}, io.StringIO(), said))
json.dump({"code": code, "said": said.getvalue(), "modules": sorted(sys.modules), "compiled": compiled}, sys.stdout)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("start") / "home"
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(home)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["code"] == 1 and "TRAINMASTER_FAILPOINTS" in found["said"]
    assert "trainmaster.app.embedded" in found["modules"]
    return found


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="this Python compiles all methods at once")
def test_few_methods_of_dataclasses_are_compiled(loaded: dict[str, Any]) -> None:
    """Of 1,600: those of values that modules make while they are loaded (`kit.late_methods`)."""
    assert 0 < len(loaded["compiled"]) < 150
    assert "__repr__" not in loaded["compiled"]
