"""A whole server on a disk that somebody fills: it answers, refuses, deletes, dies and starts, and nothing is lost."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.site import Separate
from tests.support.clients import JSON
from tests.support.server import ServerProcess, clean_environ, command, launch_server
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.crash

MAPS = "/api/v1/namespaces/default/configmaps"
FLAGS = ("--log-level", "info")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=150) as disk:
        yield disk


def _connect(server: ServerProcess) -> Separate:
    token = (server.home / "pki" / "owner.token").read_text().strip()
    return Separate(server.url, ssl.create_default_context(cafile=str(server.ca)), token)


def _build_map(name: str, size: int = 10) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * size}}


def _wait(check: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_server_on_a_full_disk_stays_refuses_and_recovers(disk: SmallDisk) -> None:
    server = launch_server(disk.path / "home")
    try:
        owner = _connect(server)
        for number in range(30):
            assert owner.call("POST", MAPS, _build_map(f"n{number}", 20_000))[0] == 201
        _wait(lambda: (server.home / "reserve").exists() and "disk.not_put_aside" not in server.log)
        time.sleep(2)  # what is put aside inside the database shows nowhere outside
        disk.fill()
        names = (f"late{number}" for number in range(1000))
        _wait(lambda: owner.call("POST", MAPS, _build_map(next(names), 10_000))[0] == 507)
        code, answer = owner.call("POST", MAPS, _build_map("more", 50_000))
        assert (code, answer["reason"]) == (507, "InsufficientStorage")
        assert "MiB left" in answer["message"] and "storage.reserve_mib" in answer["message"]
        assert owner.call("GET", f"{MAPS}/n0")[0] == 200 and owner.call("GET", "/readyz")[0] == 200
        for number in range(20):
            assert owner.call("DELETE", f"{MAPS}/n{number}")[0] == 200, server.log[-2000:]
        owner.close()
        server.kill()
        assert disk.free < 1024 * 1024

        server = launch_server(disk.path / "home")
        owner = _connect(server)
        assert "nothing is added" in server.log, "the start says it"
        found = {item["metadata"]["name"] for item in owner.get(MAPS)["items"]}
        assert {f"n{number}" for number in range(20, 30)} <= found and not found & {f"n{n}" for n in range(20)}
        assert owner.call("POST", MAPS, _build_map("more", 50_000))[0] == 507
        assert owner.call("DELETE", f"{MAPS}/n20")[0] == 200

        disk.make_room()
        _wait(lambda: owner.call("POST", MAPS, _build_map("more", 50_000))[0] == 201)
        owner.close()
        assert server.stop() == 0
        assert "Traceback" not in server.log, server.log
    finally:
        server.kill()


def test_all_jobs_can_be_deleted_on_a_full_disk(disk: SmallDisk) -> None:
    server = launch_server(disk.path / "home")
    jobs = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
    try:
        owner = _connect(server)
        for number in range(5):
            spec = {"runtimeRef": {"name": "plain"}, "suspend": True, "trainer": {"command": ["true"]}}
            meta = {"name": f"job{number}"}
            body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec}
            assert owner.call("POST", jobs, body)[0] == 201
        _wait(lambda: (server.home / "reserve").exists())
        time.sleep(2)  # what is put aside inside the database shows nowhere outside
        disk.fill()
        assert owner.call("DELETE", jobs)[0] == 200, "kubectl delete trainjobs --all"
        _wait(lambda: not owner.get(jobs)["items"])
        disk.make_room()
        assert owner.call("POST", MAPS, _build_map("after"))[0] == 201
        owner.close()
        assert server.stop() == 0
        assert "Traceback" not in server.log, server.log[-4000:]
    finally:
        server.kill()


def test_a_home_on_a_full_disk_that_never_had_room_says_so(disk: SmallDisk) -> None:
    disk.fill()
    environ = clean_environ({"TRAINMASTER_HOME": str(disk.path / "home")})
    done = subprocess.run(command("up"), env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
