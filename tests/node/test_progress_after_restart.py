"""A server that comes back at another port still hears the Pods that it had: on the machine's network, too.

The protocol's clients read the address once, from a variable; so nothing in the Pod may have to know.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.clients import JSON, Raw, Target
from tests.support.leaks import nothing_left
from tests.support.server import ServerProcess, launch_server

pytestmark = pytest.mark.node

LIMIT = 60.0
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
PODS = "/api/v1/namespaces/default/pods"
SCRIPT = """
import json, os, ssl, sys, time, urllib.request

def report(percent):
    body = {"trainerStatus": {"progressPercentage": percent, "lastUpdatedTime": f"2100-01-01T00:00:{percent:02}Z"}}
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        headers = {"Authorization": "Bearer " + file.read()}
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        assert answer.status == 200

report(10)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
report(20)
"""
HOST_NETWORK = """
ask() { curl -sS --cacert $S/ca.crt -H "Authorization: Bearer $(cat $S/token)" \
  https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/version | grep gitVersion; }
S=/var/run/secrets/kubernetes.io/serviceaccount
ask && echo first
until [ -e /flags/go ]; do sleep 0.1; done
ask && echo second
"""


@contextlib.contextmanager
def connected(server: ServerProcess) -> Iterator[Raw]:
    with contextlib.closing(Target("ours", server.kubeconfig, _issue_nothing).raw()) as raw:
        yield raw


def _issue_nothing(user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
    raise NotImplementedError


def wait_until(holds: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def get_port(server: ServerProcess) -> int:
    return urlsplit(server.url).port or 0


@contextlib.contextmanager
def moved(home: Path, server: ServerProcess, environ: dict[str, str]) -> Iterator[ServerProcess]:
    """Stops the server and starts it while somebody else has its port."""
    port = get_port(server)
    assert server.stop() == 0
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        again = launch_server(home, environ=environ)
        try:
            assert get_port(again) != port
            yield again
        finally:
            assert again.stop() == 0


def test_reports_of_a_plain_pod_reach_a_server_at_another_port(tmp_path: Path) -> None:
    home, flag, environ = tmp_path / "home", tmp_path / "go", {"TRAINMASTER_NODE_ISOLATION": "plain"}
    trainer = {"numNodes": 1, "command": ["python", "-c", SCRIPT, str(flag)]}
    job = {"metadata": {"name": "speaking"}, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}}

    def read_percentage(raw: Raw) -> int:
        report = raw.get(f"{JOBS}/speaking").get("status", {}).get("trainerStatus", {})
        return int(report.get("progressPercentage", 0))

    with nothing_left(str(tmp_path)):
        server = launch_server(home, environ=environ)
        with connected(server) as raw:
            raw.create(JOBS, {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **job})
            wait_until(lambda: read_percentage(raw) == 10, lambda: server.log[-3000:])
            pods = list_uids(raw)
        with moved(home, server, environ) as again, connected(again) as raw:
            flag.touch()
            wait_until(lambda: read_percentage(raw) == 20, lambda: again.log[-3000:])
            wait_until(lambda: is_complete(raw.get(f"{JOBS}/speaking")), lambda: raw.get(f"{JOBS}/speaking"))
            assert list_uids(raw) == pods, "it had to start again to be heard"


def list_uids(raw: Raw) -> list[str]:
    return [pod["metadata"]["uid"] for pod in raw.get(PODS)["items"]]


def is_complete(job: JSON) -> bool:
    return any(entry["type"] == "Complete" for entry in job.get("status", {}).get("conditions", []))


def test_a_pod_on_the_machines_network_reaches_a_server_at_another_port(tmp_path: Path) -> None:
    home, flags = tmp_path / "home", tmp_path / "flags"
    flags.mkdir()
    container = {
        "name": "main", "image": "plain", "command": ["bash", "-c", HOST_NETWORK],
        "volumeMounts": [{"name": "flags", "mountPath": "/flags"}],
    }  # fmt: skip
    volumes = [{"name": "flags", "hostPath": {"path": str(flags)}}]
    spec = {"hostNetwork": True, "restartPolicy": "Never", "containers": [container], "volumes": volumes}
    with nothing_left(str(tmp_path)):
        server = launch_server(home)
        with connected(server) as raw:
            raw.create(PODS, {"metadata": {"name": "near"}, "spec": spec})
            wait_until(lambda: "first" in str(raw.call("GET", f"{PODS}/near/log")[1]), lambda: raw.get(f"{PODS}/near"))
        with moved(home, server, {}) as again, connected(again) as raw:
            (flags / "go").touch()
            wait_until(
                lambda: raw.get(f"{PODS}/near")["status"]["phase"] == "Succeeded",
                lambda: raw.get(f"{PODS}/near/log"),
            )
            assert "second" in raw.get(f"{PODS}/near/log")
