"""What a start of the server loads before it serves: this is most of the time of a cold `trainmaster run`."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

pytestmark = pytest.mark.unit

PACKAGES = {"apsw", "httptools", "orjson"}
"""What a start needs beside Python: the store, HTTP/1.1 and JSON."""
LATER = (
    "trainmaster.rest", "trainmaster.app.rest.embedded_backend", "trainmaster.operator.mode",
    "trainmaster.app.doctor",
    "trainmaster.testing", "trainmaster.client.http", "trainmaster.controllers.explain.reasons", "trainmaster.sdk",
    "importlib.resources", "zipfile", "tarfile", "sysconfig", "sqlite3", "multiprocessing", "http.client",
    "urllib.request", "unittest", "pdb", "xml",
)  # fmt: skip
"""Of ours and of Python's: what is loaded when somebody asks for it, or in a program of its own."""
MOST_MODULES = 615
"""Of ours; there are 596, 31 of them packages that are nothing but a docstring. Each takes about 0.3 ms of every start:
before raising this, see which of the new ones a server needs that nobody has asked for anything yet."""

# Everything has been loaded when a setting that makes no sense ends the start.
_PROGRAM = """
import sys
before = set(sys.modules)
import dataclasses, io, json
compile_one, compiled = vars(dataclasses).get("_create_fn"), []
def count(name, *source, **rest):
    compiled.append(name)
    return compile_one(name, *source, **rest)
if compile_one:
    dataclasses._create_fn = count
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
compiled.clear()
said = io.StringIO()
code = main(["up", "--home", sys.argv[1]], CommandContext({"TRAINMASTER_FAILPOINTS": "nonsense"}, io.StringIO(), said))
modules = sorted(sys.modules.keys() - before)
installed = [name for name in modules if "/site-packages/" in (getattr(sys.modules[name], "__file__", None) or "")]
json.dump([code, said.getvalue(), modules, installed, compiled], sys.stdout)
"""


@dataclass(frozen=True)
class Loaded:
    code: int
    said: str
    modules: list[str]
    installed: list[str]
    """Of those the ones that do not come with Python and are not in this tree."""
    compiled: list[str]
    """Names of methods."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    home = tmp_path_factory.mktemp("start") / "home"
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(home)], capture_output=True, text=True, check=True)
    found = Loaded(*json.loads(done.stdout))
    assert found.code == 1 and "TRAINMASTER_FAILPOINTS" in found.said
    assert "trainmaster.app.embedded" in found.modules
    return found


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="this Python compiles all methods at once")
def test_few_methods_of_dataclasses_are_compiled(loaded: Loaded) -> None:
    """Of 1,600: those of values that modules make while they are loaded (`kit.late_methods`)."""
    assert 0 < len(loaded.compiled) < 150
    assert "__repr__" not in loaded.compiled


def test_a_start_loads_no_package_but_those_it_serves_with(loaded: Loaded) -> None:
    found = {name.partition(".")[0] for name in loaded.installed} - {"trainmaster"}
    assert found == PACKAGES


def test_a_start_loads_nothing_that_can_wait(loaded: Loaded) -> None:
    assert [name for name in LATER if name in loaded.modules] == []


def test_what_can_wait_is_called_so() -> None:
    """A name that is wrong would never be found."""
    assert [name for name in LATER if importlib.util.find_spec(name) is None] == []


def test_a_start_loads_few_modules(loaded: Loaded) -> None:
    ours = [name for name in loaded.modules if name.partition(".")[0] == "trainmaster"]
    assert len(ours) <= MOST_MODULES


def test_run_loads_neither_client_nor_event_loop_before_the_server_is_on_its_way() -> None:
    code = "import sys, trainmaster.cli.main, trainmaster.cli.commands.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "ssl", "orjson", "yaml", "apsw", "httptools", "trainmaster.client", "trainmaster.app.settings"}
    assert heavy & set(done.stdout.split()) == set()
