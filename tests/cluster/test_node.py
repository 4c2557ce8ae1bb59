"""The node is real: what a Pod may expect of Kubernetes holds there, and a TrainJob of two ranks runs on it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.site import Site
from tests.kube.images import BUSYBOX, TRAINMASTER
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS

pytestmark = pytest.mark.cluster

_ASK = """
import json, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
token, namespace = open(folder + "token").read(), open(folder + "namespace").read()
request = urllib.request.Request(f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/pods")
request.add_header("Authorization", "Bearer " + token)
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "ca.crt"))
except urllib.error.HTTPError as error:
    print("answered", error.code)
"""
_MEET = """
import os, socket, time
import trainmaster
rank, host, port = os.environ["PET_NODE_RANK"], os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])
def connect():
    for attempt in range(300):
        try:
            return socket.create_connection((host, port), 1)
        except OSError:
            time.sleep(0.1)
if rank == "0":
    server = socket.create_server(("", port))
    peer, address = server.accept()
    print("told:", peer.recv(99).decode(), flush=True)
    peer.sendall(b"welcome")
else:
    peer = connect()
    peer.sendall(f"rank {rank} is here".encode())
    print("answered:", peer.recv(99).decode(), flush=True)
for step in range(1, 6):
    trainmaster.report(step=step, total=5, loss=1 / step)
print("done", flush=True)
"""


def build_pod(name: str, *command: str, image: str = BUSYBOX, **container: Any) -> Object:
    main = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": list(command), **container}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def read_end(site: Site, name: str) -> Object | None:
    """How its container has ended."""
    statuses = site.get(PODS, name).get("status", {}).get("containerStatuses") or [{}]
    found: Object | None = statuses[0].get("state", {}).get("terminated")
    return found


def submit(site: Site) -> None:
    """All at once, because each takes seconds."""
    limited: dict[str, Any] = {"resources": {"limits": {"memory": "32Mi"}}}
    site.create(PODS, build_pod("greedy", "sh", "-c", "exec tail -c 500m /dev/zero", **limited))
    site.create(PODS, build_pod("asking", "/usr/bin/python3", "-c", _ASK, image=TRAINMASTER))
    site.create(PODS, build_pod("staying", "sh", "-c", "echo begun; exec sleep 600"))
    trainer = {"command": ["/usr/bin/python3", "-c", _MEET]}
    site.submit("meeting", "", nodes=2, image=TRAINMASTER, trainer=trainer)


def test_a_pod_reaches_the_api_server_by_name_and_gets_only_its_rights(site: Site) -> None:
    site.await_that("the Pod ends", lambda: read_end(site, "asking"))
    assert site.cluster.kubectl("logs", "asking", "-n", site.namespace) == "answered 403\n"


def test_a_memory_limit_is_enforced(site: Site) -> None:
    end = site.await_that("the Pod ends", lambda: read_end(site, "greedy"))
    assert end["reason"] == "OOMKilled"


def test_a_command_runs_in_a_pod(site: Site) -> None:
    site.cluster.kubectl("wait", "--for=condition=Ready", "pod/staying", "-n", site.namespace, "--timeout=60s")
    assert site.cluster.kubectl("exec", "staying", "-n", site.namespace, "--", "hostname") == "staying\n"
    site.cluster.kubectl("delete", "pod", "staying", "-n", site.namespace, "--wait=false")


def test_two_ranks_find_each_other_and_report_progress(site: Site) -> None:
    done = site.await_end("meeting")
    assert [one["type"] for one in done["status"]["conditions"]] == ["Complete"], json.dumps(done["status"])
    assert done["status"]["trainerStatus"]["progressPercentage"] == 100
    shown = site.cluster.kubectl("get", "trainjob", "meeting", "-n", site.namespace, "--no-headers")
    assert "Complete" in shown and "100%" in shown
    logs = site.run("logs", "meeting")
    assert logs.code == 0, logs.text
    assert {"[0] told: rank 1 is here", "[1] answered: welcome"} <= set(logs.out.splitlines())
