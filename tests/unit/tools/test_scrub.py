"""The environment of tests: which variables reach them, and that every way of running them goes through the list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.server import clean_environ
from tools.scrub import ALLOWED, KNOBS, scrub

pytestmark = pytest.mark.unit

WANTED = {
    "HOME": "/h", "PATH": "/bin", "TERM": "xterm", "LANG": "C.UTF-8", "LC_ALL": "C", "TMPDIR": "/t", "CI": "true",
    "XDG_CACHE_HOME": "/c", "https_proxy": "p", "NO_PROXY": "n", "PIP_INDEX_URL": "i", "UV_INDEX": "u", "GOPROXY": "g",
    "GOFLAGS": "-mod=mod", "SSL_CERT_FILE": "s", "TRAINMASTER_CHAOS_SEED": "7",
}  # fmt: skip
UNWANTED = {
    "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "/x", "PYTHONHASHSEED": "0", "NO_COLOR": "1",
    "KUBECONFIG": "/k", "TRAINMASTER_HOME": "/home", "TRAINMASTER_SERVER_PORT": "1", "LD_PRELOAD": "x", "COLUMNS": "9",
    "VIRTUAL_ENV": "/v", "PIPE": "x", "LCX": "x", "MAKEFLAGS": "-j", "SHELL": "/bin/sh", "EDITOR": "vi",
}  # fmt: skip


def test_only_what_is_allowed_gets_through() -> None:
    assert scrub({**WANTED, **UNWANTED}) == WANTED


def test_the_list_is_sorted_out_once() -> None:
    names = [*ALLOWED, *KNOBS]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith("PYTHON")]


def test_a_server_that_tests_start_gets_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {**WANTED, **UNWANTED}.items():
        monkeypatch.setenv(name, text)
    environ = clean_environ({"TRAINMASTER_LOG_LEVEL": "debug"})
    assert environ["TRAINMASTER_LOG_LEVEL"] == "debug"
    assert environ["CI"] == "true"
    assert not set(environ) & {*UNWANTED, *KNOBS}


def test_this_very_test_runs_in_it() -> None:
    assert set(os.environ) == set(scrub(os.environ))


PROBE = """
import os, pathlib, pytest, signal
pytestmark = pytest.mark.unit
def test_probe():
    pathlib.Path(os.environ["TMPDIR"], "seen").write_text("\\n".join(os.environ))
    for number in (signal.SIGHUP, signal.SIGINT):
        assert signal.getsignal(number) is not signal.SIG_IGN
"""


def test_a_test_run_goes_through_it(tmp_path: Path) -> None:
    (tmp_path / "test_probe.py").write_text(PROBE)
    environ = {**WANTED, **UNWANTED, "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "PYTHONPATH": ""}
    environ.pop("LD_PRELOAD")
    probe = ["-c", "pyproject.toml", "-o", f"cache_dir={tmp_path}", str(tmp_path / "test_probe.py")]
    # As under nohup, or in the background of a script.
    deaf = ["env", "--ignore-signal=HUP,INT"]
    command = [*deaf, sys.executable, "tools/testrun.py", "unit", "--", *probe]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = set((tmp_path / "seen").read_text().split())
    assert "CI" in seen
    assert not seen & set(UNWANTED)


def test_what_tests_are_told_from_outside_is_in_the_list() -> None:
    """Else the list would take it away without a word."""
    asked = re.compile(r"""os\.environ(?:\.get\(|\[)["'](TRAINMASTER_(?!HOME|OUTPUT_DIR|ATTEMPT|CONTAINER_ID)\w+)""")
    files = ROOT.joinpath("tests").rglob("*.py")
    found = {name for path in files for name in asked.findall(path.read_text())}
    assert found == set(KNOBS)
