"""Packages that are imported in advance, and those that are not, because of what their import does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

pytestmark = pytest.mark.unit

BAD = {
    "threads": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "threads",
    ),
    "forks": ("import os, time\nif not os.fork():\n    time.sleep(60)", "processes"),
    "forks_and_waits": ("import os\nif not os.fork():\n    os._exit(0)\nos.wait()", "processes"),
    "runs": ("import subprocess; subprocess.run(['true'])", "processes"),
    "opens": ("kept = open('/dev/null')", "files open: /dev/null"),
    "asks_a_device": ("import os; os.close(os.open('/dev/tty0', os.O_RDONLY | os.O_PATH))", "opens a device"),
    "writes": ("import os; os.makedirs(os.path.expanduser('~/made'))", "writes files"),
    "leaves": ("import tempfile; tempfile.mkdtemp()", "writes files"),
    "escapes": (
        "import os, tempfile\nwith tempfile.TemporaryDirectory() as place:\n    os.mkdir(place + '/../made')",
        "writes files",
    ),
    "connects": ("import socket; socket.socket().connect_ex(('127.0.0.1', 1))", "network"),
    "prints": ("print('hello')", "prints"),
    "warns": ("import sys; sys.stderr.write('careful')", "prints"),
    "sets": ("import os; os.environ['X_NEW'] = '1'", "variables"),
    "handles": ("import signal; signal.signal(signal.SIGUSR1, lambda *_: None)", "signal handlers"),
    "localises": ("import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')", "locale"),
    "moves": ("import os; os.chdir('/tmp')", "directory"),
    "exits": ("import sys; sys.exit(3)", "ends the program"),
    "ends": ("import os; os._exit(0)", "ends the program"),
    "crashes": ("import os; os.abort()", "ends the program"),
    "fails": ("raise RuntimeError('needs a display')", "RuntimeError: needs a display"),
    "hangs": ("import time; time.sleep(60)", "longer than"),
    "needs_a_display": ("import os; os.environ['DISPLAY']", "KeyError: 'DISPLAY'"),
    "reads": ("import os; os.environ.get('RANK')", "reads RANK"),
    "picks": ("import os; KEPT = {k for k in os.environ if k.startswith('PICK_')}", "reads all variables"),
    "counts": ("import os; os.environ.get('OMP_NUM_THREADS')", "reads OMP_NUM_THREADS"),
    "stops": (
        "import os, signal; os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), 9))",
        "cannot be forked",
    ),
}
GOOD = {
    "plain": "VALUE = 1",
    "lazy": "import atexit; atexit.register(print, 'bye')",
    "probes": (
        "import os, pathlib, tempfile\nwith tempfile.TemporaryDirectory() as place:\n"
        "    (pathlib.Path(place) / 'a').touch()\n    os.link(f'{place}/a', f'{place}/b', follow_symlinks=False)"
    ),
    "asks": "import os, tempfile; tempfile.gettempdir(); open('/dev/urandom', 'rb').close(); os.environ.get('USER')",
}
CODE = """
import json, os, sys
from trainmaster.shim.warm import trials, zygote
trials._ALL, trials._EACH = 2.0, 1.0
before = set(sys.modules)
reads = {}
plain = type(os.environ)
os.environ.__class__ = zygote._build_recorder(plain, reads)
found = trials.import_in_advance(json.loads(sys.argv[1]), ["RANK"], reads)
os.environ.__class__ = plain
loaded = sorted(set(sys.modules) - before)
print(json.dumps([*found, loaded, dict(os.environ).get("X_NEW"), os.getcwd()]), flush=True)
os._exit(0)
"""


def run(tmp_path: Path, *modules: str) -> list[object]:
    for name, text in {**GOOD, **{name: text for name, (text, _) in BAD.items()}}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "broken.py").write_text("import nosuch")
    for number in range(9):
        (tmp_path / "pack" / f"part{number}.py").write_text(BAD["threads"][0] if number == 5 else "")
    environ = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "LC_ALL": "C", "HOME": str(tmp_path / "home"), "TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(modules)],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    found: list[object] = json.loads(done.stdout)
    return found


def test_each_bad_package_is_left_out_with_its_reason_and_leaves_no_trace(tmp_path: Path) -> None:
    done, left_out, loaded, variable, folder = run(tmp_path, "plain", *BAD, "lazy", "probes", "asks")
    assert done == list(GOOD)
    assert isinstance(left_out, list)
    for (name, (_, why)), text in zip(BAD.items(), left_out, strict=True):
        assert text.startswith(f"{name} (") and why in text, text
    assert isinstance(loaded, list)
    assert set(loaded) & {*BAD, *GOOD} == set(GOOD)
    assert (variable, folder) == (None, str(tmp_path))


def test_good_packages_are_imported_and_a_module_that_is_broken_here_is_left_to_the_program(tmp_path: Path) -> None:
    done, left_out, *_ = run(tmp_path, "plain", "pack", "pack.broken", "lazy")
    assert (done, left_out) == (["plain", "pack", "lazy"], [])


@pytest.mark.parametrize("order", ["0123456", "5", "50", "05", "1234", "876543210"])
def test_of_a_package_the_modules_before_the_first_bad_one_are_imported(tmp_path: Path, order: str) -> None:
    names = [f"pack.part{number}" for number in order]
    done, left_out, loaded, *_ = run(tmp_path, "plain", "pack", *names, "lazy")
    assert done == ["plain", "pack", "lazy"]
    assert left_out == (["pack.part5 (it starts threads)"] if "5" in order else [])
    assert isinstance(loaded, list)
    assert {name for name in loaded if name.startswith("pack.")} == set(
        names[: order.find("5")] if "5" in order else names
    )
