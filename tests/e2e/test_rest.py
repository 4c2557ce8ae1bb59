"""The REST API of a real server: real training through it, other people's namespaces, and the pages' walk through."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.house.tree import ROOT
from tests.support.clients import Raw
from tests.support.environments import find_or_skip
from tests.support.server import ServerProcess, clean_environ, command, start_server
from tools import frameworks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples" / "rest"
PATIENCE = 240.0
CONFIG = {"num_nodes": 2, "gpu_per_node": 0, "cpu_per_node": "100m", "memory_per_node": "2Gi"}
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings"


@dataclass
class Desk:
    server: ServerProcess
    kube: Raw
    rest: Raw
    """As the owner."""
    alice: str
    """Token of a service account of team-a that may edit there and nothing else."""
    pytorch: str = ""
    """Trains while the other tests run."""
    tensorflow: str = ""

    @contextmanager
    def connect(self, token: str) -> Iterator[Raw]:
        raw = Raw(self.server.rest_url, ssl.create_default_context(cafile=str(self.server.ca)), token)
        try:
            yield raw
        finally:
            raw.close()

    def create(self, **changes: Any) -> str:
        base = {"user_id": "alice", "namespace": "default", "framework": "pytorch", "training_code": "print(1)"}
        code, answer = self.rest.call("POST", "/api/trainjob/create", {**base, "config": CONFIG, **changes})
        assert code == 200, answer
        assert set(answer) == {"status", "trainjob_name", "namespace", "created_at"}
        return str(answer["trainjob_name"])

    def wait_for_end(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            code, answer = self.rest.call("GET", f"/api/trainjob/{name}/status?namespace=default")
            assert code == 200, answer
            if answer["state"] != "Running":
                return dict(answer)
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def read_log(self, name: str, worker: int) -> str:
        code, answer = self.rest.call("GET", f"/api/trainjob/{name}/logs?namespace=default&worker={worker}")
        assert code == 200, answer
        assert (answer["trainjob_name"], answer["worker"]) == (name, worker)
        return str(answer["logs"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    environments = {tool: find_or_skip(tool) for tool in (frameworks.TOOL, frameworks.TENSORFLOW)}
    open_to_all = {"TRAINMASTER_REST_SIGN_UP": "true"}
    with start_server(tmp_path_factory.mktemp("rest") / "home", environ=open_to_all) as server:
        context = ssl.create_default_context(cafile=str(server.ca))
        token = (server.home / "pki" / "owner.token").read_text()
        kube = Raw(server.url, context, token)
        rest = Raw(server.rest_url, context, token)
        paths = {tool: {"path": str(path)} for tool, path in environments.items()}
        rules = [
            {"image": "*tensorflow/tensorflow*", "environment": frameworks.TENSORFLOW},
            {"image": "*pytorch/pytorch*", "environment": frameworks.TOOL},
        ]
        table = json.dumps({"environments": paths, "rules": rules})
        rules_map = {"metadata": {"name": "image-rules"}, "data": {"rules.yaml": table}}
        kube.create("/api/v1/namespaces/kubeflow-system/configmaps", rules_map)
        desk = Desk(server, kube, rest, make_tenant(kube))
        desk.pytorch = desk.create(training_code=read_example("train_pytorch.py"))
        desk.tensorflow = desk.create(framework="tensorflow", training_code=read_example("train_tensorflow.py"))
        yield desk
        for raw in (kube, rest):
            raw.close()


def make_tenant(kube: Raw) -> str:
    """A namespace with a service account that may edit in it; its token."""
    kube.create("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    accounts = "/api/v1/namespaces/team-a/serviceaccounts"
    kube.create(accounts, {"metadata": {"name": "alice"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "alice", "namespace": "team-a"}
    kube.create(ROLES, {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [subject]})
    made = kube.create(f"{accounts}/alice/token", {"spec": {}})
    return str(made["status"]["token"])


def read_example(name: str) -> str:
    return (EXAMPLES / name).read_text()


def test_a_failing_program_says_who_failed_and_why(desk: Desk) -> None:
    """The runtime restarts it six times; a job that must not go on is deleted."""
    name = desk.create(training_code="print('before')\nraise SystemExit('no data')\n", config={"num_nodes": 1})
    deadline = time.monotonic() + PATIENCE
    while "no data" not in json.dumps(desk.rest.call("GET", f"/api/trainjob/{name}/logs?namespace=default")[1]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert desk.rest.call("DELETE", f"/api/trainjob/{name}?namespace=default")[0] == 200
    ended = desk.wait_for_end(name)
    assert ended["state"] == "Failed"
    assert "deleted before its end" in ended["message"]


def test_a_caller_may_do_in_rest_what_they_may_in_kubernetes(desk: Desk) -> None:
    with desk.connect(desk.alice) as alice:
        check_walls(desk, alice)


def check_walls(desk: Desk, alice: Raw) -> None:
    body = {"user_id": "alice", "framework": "pytorch", "training_code": "print(1)", "config": {"num_nodes": 1}}
    code, made = alice.call("POST", "/api/trainjob/create", {**body, "namespace": "team-a"})
    assert code == 200, made
    name = made["trainjob_name"]
    code, _ = alice.call("GET", f"/api/trainjob/{name}/status?namespace=team-a")
    assert code == 200
    theirs = desk.create(training_code="print(2)", config={"num_nodes": 1})
    for method, path, sent in (
        ("POST", "/api/trainjob/create", {**body, "namespace": "default"}),
        ("GET", f"/api/trainjob/{theirs}/status?namespace=default", None),
        ("GET", f"/api/trainjob/{theirs}/logs?namespace=default", None),
        ("DELETE", f"/api/trainjob/{theirs}?namespace=default", None),
        ("GET", "/api/trainjob/alice-job-20200101000000/status?namespace=default", None),
    ):
        code, refused = alice.call(method, path, sent)
        assert code == 403, (method, path, refused)
    desk.wait_for_end(theirs)
    desk.rest.call("DELETE", f"/api/trainjob/{theirs}?namespace=default")
    # History is behind the same wall.
    code, refused = alice.call("GET", f"/api/trainjob/{theirs}/status?namespace=default")
    assert code == 403, refused


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"framework": "mxnet"}, "/framework"),
        ({"config": {"num_nodes": 0}}, "/config/num_nodes"),
        ({"config": {"num_nodes": 10_000}}, "/config/num_nodes"),
        ({"config": {"gpu_per_node": "two"}}, "/config/gpu_per_node"),
        ({"training_code": ""}, "/training_code"),
        ({"training_code": "int main() {}"}, "/training_code"),
        ({"user_id": "Alice"}, "/user_id"),
        ({"namespace": None}, "/namespace"),
        ({"nodes": 1}, "/nodes"),
    ],
)
def test_bad_input_names_its_field(desk: Desk, changes: dict[str, Any], pointer: str) -> None:
    base = {"user_id": "alice", "namespace": "default", "framework": "pytorch", "training_code": "print(1)"}
    code, text = desk.rest.call("POST", "/api/trainjob/create", {**base, "config": CONFIG, **changes})
    assert code == 422, text
    assert [error["pointer"] for error in json.loads(text)["errors"]] == [pointer]


def test_five_megabytes_of_code_are_refused_before_they_are_read(desk: Desk) -> None:
    body = {"user_id": "alice", "namespace": "default", "framework": "pytorch", "training_code": "#" * 5_000_000}
    with desk.connect((desk.server.home / "pki" / "owner.token").read_text()) as raw:
        code, text = raw.call("POST", "/api/trainjob/create", body)
    assert code == 413, text
    assert desk.rest.call("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("whole", [True, False])
def test_a_client_that_goes_away_leaves_all_or_nothing(desk: Desk, whole: bool) -> None:
    user = "gone" if whole else "half"
    body = {"user_id": user, "namespace": "default", "framework": "pytorch", "training_code": "print(1)"}
    raw = json.dumps({**body, "config": {"num_nodes": 1, "cpu_per_node": "100m"}}).encode()
    token = (desk.server.home / "pki" / "owner.token").read_text()
    address = desk.server.rest_url.removeprefix("https://")
    head = f"POST /api/trainjob/create HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    host, _, port = address.partition(":")
    context = ssl.create_default_context(cafile=str(desk.server.ca))
    with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as connection:
        connection.sendall(head.encode() + (raw if whole else raw[:-10]))
    # A later request is answered later, so the abandoned one was seen.
    deadline = time.monotonic() + PATIENCE
    while True:
        assert desk.rest.call("GET", "/readyz")[0] == 200
        jobs = desk.kube.get(f"{TRAINJOBS}?labelSelector=trainmaster.dev/user={user}")["items"]
        scripts = desk.kube.get(f"{CONFIG_MAPS}?labelSelector=trainmaster.dev/user={user}")["items"]
        if not whole or jobs:
            break
        assert time.monotonic() < deadline
    if not whole:
        assert (jobs, scripts) == ([], [])
        return
    (job,) = jobs
    names = {script["metadata"]["name"]: script["metadata"].get("ownerReferences") for script in scripts}
    assert names[f"{job['metadata']['name']}-script"][0]["uid"] == job["metadata"]["uid"]


def test_the_address_is_told_and_kept(desk: Desk) -> None:
    rest = desk.server.info["rest"]
    assert rest["url"].startswith("https://127.0.0.1:")
    assert Path(rest["ca"]).read_text() == desk.server.ca.read_text()
    assert rest["url"].endswith(":" + (desk.server.home / "rest-port").read_text().strip())


def test_rest_alone_serves_the_same_home(desk: Desk, tmp_path: Path) -> None:
    """Before it stands the Kubernetes API, so callers are sent on with their own tokens."""
    arguments = ("rest", "--home", str(desk.server.home), "--state", str(tmp_path / "state"))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command(*arguments), env=clean_environ(), stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().split()[-1]
        ca = process.stdout.readline().decode().split()[-1]
        raw = Raw(url, ssl.create_default_context(cafile=ca), desk.alice)
        body = {"user_id": "alice", "framework": "pytorch", "training_code": "print(1)", "config": {"num_nodes": 1}}
        code, made = raw.call("POST", "/api/trainjob/create", {**body, "namespace": "team-a"})
        assert code == 200, made
        assert raw.call("GET", f"/api/trainjob/{made['trainjob_name']}/status?namespace=team-a")[0] == 200
        assert raw.call("POST", "/api/trainjob/create", {**body, "namespace": "default"})[0] == 403
        raw.close()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0, (tmp_path / "log").read_text()


def read_blocks(page: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert len(blocks) >= 4
    return blocks


def test_a_new_user_signs_up_and_trains_as_the_page_says(desk: Desk, tmp_path: Path) -> None:
    rest = desk.server.info["rest"]
    environ = clean_environ({"URL": rest["url"], "CA": rest["ca"], "HOME": str(tmp_path)})
    script = "\n".join(["set -e -o pipefail", *read_blocks("tenants.md")])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=PATIENCE
    )
    said = done.stdout + done.stderr
    node = desk.kube.call("GET", "/api/v1/nodes/local")[1]
    if node["metadata"]["annotations"]["trainmaster.dev/isolation"] != "full":
        assert done.returncode != 0, said
        with desk.connect("") as nobody:
            assert "problem:no-walls" in str(nobody.call("POST", "/api/v1/signup", {"name": "ann"})[1])
        return
    assert done.returncode == 0, said
    me, created, ended, refused = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (me["tenant"], created["namespace"], ended["state"], refused["status"]) == ("ann", "ann", "Complete", 403)
    for worker in range(2):
        assert f"worker {worker} of 2: the sum is 3.0" in done.stdout


def test_the_walk_through_works_as_written(tmp_path: Path) -> None:
    blocks = read_blocks("rest.md")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = clean_environ({"TRAINMASTER_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": path})
    script = "\n".join(["set -e -o pipefail", "trap 'trainmaster down >/dev/null 2>&1 || true' EXIT", *blocks])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    created, ended, log, deleted, gone, kept = answers
    assert ended["state"] == gone["state"] == "Complete"
    assert log == kept
    assert "worker 1 of 2 meets at" in log["logs"]
    assert "alice-train-script is deleted" in deleted["message"]
    assert created["status"] == "success"


def test_pytorch_trains_on_two_nodes(desk: Desk) -> None:
    name = desk.pytorch
    assert re.fullmatch(r"alice-job-\d{14}", name)
    ended = desk.wait_for_end(name)
    assert ended["state"] == "Complete", ended
    assert ended["completed_at"] >= ended["created_at"]
    for worker in range(2):
        found = re.search(r"final loss: (\S+) on 2 nodes", desk.read_log(name, worker))
        assert found is not None and float(found[1]) < 0.01
    # A job that is gone is answered from its record.
    before = desk.read_log(name, 1)
    assert desk.rest.call("DELETE", f"/api/trainjob/{name}?namespace=default")[0] == 200
    after = desk.wait_for_end(name)
    assert (after["state"], after["created_at"]) == ("Complete", ended["created_at"])
    assert "deleted" in after["message"]
    assert desk.read_log(name, 1) == before


def test_tensorflow_trains_on_two_workers(desk: Desk) -> None:
    name = desk.tensorflow
    ended = desk.wait_for_end(name)
    assert ended["state"] == "Complete", (ended, desk.read_log(name, 0))
    for worker in range(2):
        log = desk.read_log(name, worker)
        found = re.search(r"final loss: (\S+) accuracy: (\S+) on 2 workers", log)
        assert found is not None, log
        assert float(found[1]) < 0.4 and float(found[2]) > 0.9
        assert f"worker {worker} of 2" in log
