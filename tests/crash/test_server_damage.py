"""A server whose write-ahead log was damaged while it was dead starts, and says everywhere what is lost."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.attacks.site import Separate
from tests.support.server import ServerProcess, clean_environ, command, launch_server
from trainmaster.store import database

pytestmark = pytest.mark.crash

MAPS = "/api/v1/namespaces/default/configmaps"


def _connect(server: ServerProcess) -> Separate:
    token = (server.home / "pki" / "owner.token").read_text().strip()
    return Separate(server.url, ssl.create_default_context(cafile=str(server.ca)), token)


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environ({"TRAINMASTER_HOME": str(home)})
    return subprocess.run(command(*arguments), env=environ, capture_output=True, text=True, timeout=60)


def test_a_damaged_log_is_said_in_the_log_by_status_by_doctor_and_in_an_event(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = launch_server(home)
    try:
        owner = _connect(server)
        seen = 0
        for number in range(8):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"n{number}"},
                "data": {"x": "y" * 9000},
            }
            seen = int(owner.create(MAPS, body)["metadata"]["resourceVersion"])
        server.kill()
        log = home / "store" / "store.db-wal"
        content = bytearray(log.read_bytes())
        content[32 + 3 * database.FRAME_BYTES + 700] ^= 1
        log.write_bytes(content)

        server = launch_server(home)
        owner = _connect(server)
        assert "acknowledged writes or more after revision" in server.log
        found = owner.get(MAPS)
        assert int(found["metadata"]["resourceVersion"]) > seen + 100_000
        assert owner.call("GET", f"{MAPS}?watch=1&resourceVersion={seen}&timeoutSeconds=1")[0] == 410
        events = owner.get("/api/v1/events")["items"]
        assert any(event["reason"] == "StoreDamaged" and "are lost" in event["message"] for event in events)
        said = json.loads(_run(home, "status", "-o", "json").stdout)
        assert said["ready"] and said["damages"][0]["missing"] > 0
        assert "damage:" in _run(home, "status").stdout
        doctor = json.loads(_run(home, "doctor", "-o", "json").stdout)
        (line,) = [check for check in doctor["checks"] if check["check"] == "store"]
        assert line["state"] == "problem" and "trainmaster restore" in line["advice"]
        assert server.stop() == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()


def test_a_damaged_database_is_refused_in_a_sentence_that_names_the_way_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = launch_server(home)
    assert server.stop() == 0
    path = home / "store" / database.FILE
    content = bytearray(path.read_bytes())
    content[database.PAGE_BYTES : database.PAGE_BYTES + 64] = b"\xff" * 64
    path.write_bytes(content)
    done = _run(home, "up")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "is damaged" in done.stderr and "trainmaster restore" in done.stderr
