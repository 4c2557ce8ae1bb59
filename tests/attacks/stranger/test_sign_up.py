"""A stranger uses up open sign-up: all attempts, all names, or the name of somebody who was there before."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.site import Separate, make_caller, run_command
from tests.support.server import ServerProcess, start_server

pytestmark = pytest.mark.attacks

SETTINGS = {
    "TRAINMASTER_REST_SIGN_UP": "true",
    "TRAINMASTER_REST_SIGN_UPS_PER_HOUR_PER_ADDRESS": "12",
    "TRAINMASTER_LIMITS_TRUSTED_PROXIES": "127.0.0.1",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("open") / "home"
    with start_server(home, environ=SETTINGS) as server:
        yield server
        assert server.process.poll() is None
        assert "Traceback" not in server.log, server.log[-4000:]
        run_command(home, "down", "--stop-jobs", "--timeout", "20")
        server.process.wait(30)


def sign_up(server: ServerProcess, name: str, address: str, **more: Any) -> tuple[int, Any]:
    """As a proxy passes it on that is trusted."""
    context = ssl.create_default_context(cafile=str(server.ca))
    rest = Separate(server.rest_url, context, "")
    return rest.call("POST", "/api/v1/signup", {"name": name, **more}, **{"X-Forwarded-For": address})


def test_one_address_uses_up_its_own_attempts_only(server: ServerProcess) -> None:
    codes = [sign_up(server, f"flood{number}", "192.0.2.7")[0] for number in range(9)]
    assert codes == [201] * 6 + [429] * 3
    code, answer = sign_up(server, "flood9", "192.0.2.7")
    assert code == 429 and "rest.sign_ups_per_hour_per_address" in str(answer)
    assert sign_up(server, "calm", "192.0.2.8")[0] == 201


def test_an_ipv6_host_is_one_address_whichever_it_takes(server: ServerProcess) -> None:
    codes = [sign_up(server, f"six{number}", f"2001:db8:1:2::{number + 1:x}")[0] for number in range(8)]
    assert codes == [201] * 6 + [429] * 2
    assert sign_up(server, "six-other", "2001:db8:1:3::1")[0] == 201


def test_names_that_are_taken_or_wrong_count_too_and_cost_nobody_else(server: ServerProcess) -> None:
    codes = [sign_up(server, "kube-system", "192.0.2.20")[0] for _ in range(8)]
    assert codes == [422] * 6 + [429] * 2
    assert sign_up(server, "next", "192.0.2.21")[0] == 201


def test_every_tenant_has_an_object_of_its_own(server: ServerProcess) -> None:
    assert sign_up(server, "own-object", "192.0.2.30")[0] == 201
    owner = make_caller(server, "default", (server.home / "pki" / "owner.token").read_text().strip())
    found = owner.kube.get("/api/v1/namespaces/kubeflow-system/configmaps")["items"]
    holding = [entry["metadata"]["name"] for entry in found if "own-object" in json.dumps(entry.get("data") or {})]
    user = next(entry for entry in found if entry["metadata"]["name"] == "trainmaster-tenant-own-object")["data"]
    assert sorted(holding) == ["trainmaster-tenant-own-object", f"trainmaster-unix-user-{user['unix-user']}"]
    owner.close()


def test_who_signs_up_has_a_bounded_share_of_the_machine(server: ServerProcess) -> None:
    assert sign_up(server, "bounded", "192.0.2.40")[0] == 201
    owner = make_caller(server, "default", (server.home / "pki" / "owner.token").read_text().strip())
    quota = owner.kube.get("/api/v1/namespaces/bounded/resourcequotas/tenant")["spec"]["hard"]
    shares = ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "trainmaster.dev/storage")
    assert [quota[name] for name in shares] == ["2", "4Gi", "2", "4Gi", "20Gi"]
    owner.close()


def test_the_name_of_a_deleted_tenant_is_free_only_when_nothing_of_it_is_left(server: ServerProcess) -> None:
    code, issued = sign_up(server, "gone", "192.0.2.40")
    assert code == 201
    caller = make_caller(server, "gone", issued["token"])
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "secret-merger"},
        "spec": {
            "runtimeRef": {"name": "plain", "kind": "ClusterTrainingRuntime"},
            "trainer": {"command": ["sh", "-c", "echo 1 > $TRAINMASTER_OUTPUT_DIR/result"]},
        },
    }
    path = caller.path("trainjobs", group="trainer.kubeflow.org/v1alpha1")
    caller.kube.create(path, job)
    wait_until(lambda: "Complete" in json.dumps(caller.kube.get(f"{path}/secret-merger").get("status", {})))
    before = json.loads(run_command(server.home, "tenant", "get", "gone", "-o", "json"))["unix_user"]
    caller.close()
    run_command(server.home, "tenant", "delete", "gone", "--yes")
    owner = make_caller(server, "default", (server.home / "pki" / "owner.token").read_text().strip())
    wait_until(lambda: owner.kube.call("GET", "/api/v1/namespaces/gone")[0] == 404)
    owner.close()
    assert sign_up(server, "gone", "192.0.2.41")[0] == 409
    run_command(server.home, "history", "purge", "-n", "gone", "--all", "--yes")
    wait_until(lambda: sign_up(server, "gone", unique_address())[0] == 201)
    after = json.loads(run_command(server.home, "tenant", "get", "gone", "-o", "json"))["unix_user"]
    assert after != before


_given = [0]


def unique_address() -> str:
    _given[0] += 1
    return f"198.51.100.{_given[0]}"


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_invited_guest_comes_in_also_when_sign_up_is_full(tmp_path: Path, server: ServerProcess) -> None:
    made = json.loads(run_command(server.home, "tenant", "invite", "--memory", "3Gi", "-o", "json"))
    code, issued = sign_up(server, "guest", "192.0.2.50", invitation=made["code"])
    assert code == 201
    caller = make_caller(server, "guest", issued["token"])
    allowed = {entry["resource"]: entry["allowed"] for entry in caller.rest.get("/api/v1/me")["quota"]}
    caller.close()
    assert allowed["limits.memory"] == "3Gi"
    assert sign_up(server, "guest2", "192.0.2.50", invitation=made["code"])[0] == 409
    assert sign_up(server, "guest2", "192.0.2.50", invitation="x" * 100)[0] == 409
