"""Another Unix user of the machine, with a shell and no credential, against a server and its running Pods.

The home lies in a directory that everybody may enter, and everybody may enter the home itself: the worst case.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.site import Caller, make_caller, run_command
from tests.support.server import NotStarted, ServerProcess, launch_server

pytestmark = pytest.mark.attacks

ROOT = Path(__file__).resolve().parents[3]
OWNER, STRANGER = 61_234, 61_235
HARMLESS = ("ca.crt", "server.crt", "admin.crt", "test.log")
"""Certificates are public. The last one is this test's own."""


@dataclass(frozen=True)
class Place:
    server: ServerProcess
    owner: Caller
    findings: dict[str, Any]
    """What the stranger found out."""


def look(directory: Path, pids: list[int]) -> dict[str, Any]:
    script = [sys.executable, "-m", "tests.attacks.unix_user.stranger", str(directory), *map(str, pids)]
    argv = [sys.executable, "-m", "tests.support.as_user", str(STRANGER), *script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def list_processes(*marks: str) -> list[int]:
    """Whose command line or environment mentions the home or the Pod."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            told = Path(f"/proc/{entry}/cmdline").read_bytes() + Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if int(entry) != os.getpid() and any(mark.encode() in told for mark in marks):
            found.append(int(entry))
    return found


@pytest.fixture(scope="module", params=["root", "ordinary"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if os.geteuid() != 0:
        pytest.skip("becoming other Unix users needs root")
    user = None if request.param == "root" else OWNER
    folder = Path(tempfile.mkdtemp(prefix="trainmaster-open-"))
    home = folder / "home"
    for each in (folder, home, home / "logs"):
        each.mkdir(exist_ok=True)
        each.chmod(0o755)
        os.chown(each, user or 0, user or 0)
    server = launch_server(home, user=user, environ={"HOME": str(folder)})
    owner = make_caller(server, "default", (home / "pki" / "owner.token").read_text().strip())
    try:
        uid = owner.start_pod("target", "sleep 300")["metadata"]["uid"]
        owner.wait_for_pod("target", "Running")
        pids = list_processes(str(home), uid)
        assert server.pid in pids and len(pids) >= 4, "the server, its zygote, a shim and the program"
        yield Place(server, owner, look(folder, pids))
    finally:
        owner.kube.call("DELETE", f"{owner.path('pods', 'target')}?gracePeriodSeconds=0")
        run_command(home, "down", "--stop-jobs", "--timeout", "20")
        server.process.wait(30)
        shutil.rmtree(folder)


def test_no_file_of_the_home_can_be_read_but_certificates(place: Place) -> None:
    shown = [path for path in place.findings["read"] if os.path.basename(path) not in HARMLESS]
    assert [path for path in shown if "/environments/" not in path and "/.common/" not in path] == []


def test_what_can_be_read_for_pods_of_tenants_holds_no_secret(place: Place) -> None:
    secrets = [
        place.owner.token.encode(),
        (place.server.home / "pki" / "service-accounts.secret").read_bytes().strip(),
        b"PRIVATE KEY",
    ]
    for path in place.findings["read"]:
        content = Path(path).read_bytes()
        assert not any(secret in content for secret in secrets), path


def test_nothing_of_the_home_can_be_written(place: Place) -> None:
    assert place.findings["written"] == []


def test_no_lock_that_the_server_needs_can_be_taken(place: Place) -> None:
    """Somebody who holds a lock on it would keep the server from starting."""
    locks = [path for path in place.findings["locked"] if "lock" in os.path.basename(path)]
    assert locks == []


def test_no_socket_of_the_server_its_zygote_or_its_shims_can_be_reached(place: Place) -> None:
    assert place.findings["connected"] == []
    assert [name for name in place.findings["abstract"] if "trainmaster" in name or "shim" in name] == []


def test_no_process_can_be_looked_into_or_signalled(place: Place) -> None:
    assert {pid: reached for pid, reached in place.findings["processes"].items() if reached} == {}


@pytest.mark.parametrize("path", ["/api/v1/secrets", "/metrics", "/openapi/v2", "/apis"])
def test_the_port_says_nothing_without_a_credential(place: Place, path: str) -> None:
    stranger = make_caller(place.server, "default", "")
    for raw in (stranger.kube, stranger.rest):
        code, _ = raw.call("GET", path)
        assert code in (401, 404), code


def test_a_home_that_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    """Whoever owns a directory may exchange what is in it: the server would take its keys from them."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, STRANGER, STRANGER)
    with pytest.raises(NotStarted, match="belongs to another user"):
        launch_server(home)
    assert sorted(path.name for path in home.iterdir()) == ["logs"], "made by this test"
