"""The whole server under an ordinary user, with user namespaces and without: two jobs at once, volumes, logs, adoption.

Nobody gives that user anything: no account, no control groups, no directory but the home.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.node.bench import get_ended, has_phase, is_over
from tests.node.sandboxes import ORDINARY
from tests.support.leaks import nothing_left
from tests.support.server import ServerProcess, launch_server
from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client, LogOptions, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

pytestmark = pytest.mark.node

LIMIT = 60.0
# Rank 0 waits for its peer at 29500, and for both jobs to be there, so that they listen at the same time.
RENDEZVOUS = """
import os, socket, time
name, rank = os.environ["JOB"], os.environ["JOB_COMPLETION_INDEX"]
if rank == "0":
    listener = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    open("/meeting/" + name, "w").close()
    while len(os.listdir("/meeting")) < 2:
        time.sleep(0.02)
    print("met", listener.accept()[0].recv(64).decode())
else:
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER"], int(os.environ["MASTER_PORT"])), 1)
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(name.encode())
"""


@dataclass
class Place:
    """A home of the ordinary user, and the server that runs there now."""

    root: Path
    isolation: str
    server: ServerProcess | None = None

    def start(self) -> None:
        environ = {"TRAINMASTER_NODE_ISOLATION": self.isolation, "HOME": str(self.root)}
        self.server = launch_server(self.root / "home", environ=environ, user=ORDINARY)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        assert self.server is not None
        client = HttpClient(load_kubeconfig([self.server.kubeconfig]))
        try:
            yield client
        finally:
            await client.close()

    def run(self, test: Callable[[Client], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(LIMIT), self.connect() as client:
                await test(client)

        asyncio.run(main())


@pytest.fixture(scope="module", params=["auto", "plain"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="tm-") as name, nothing_left("tm-ordinary", ORDINARY):
        root = Path(name)
        (root / "home" / "logs").mkdir(parents=True)
        (root / "meeting").mkdir()
        for path in (root, *root.rglob("*")):
            os.chown(path, ORDINARY, ORDINARY)
        found = Place(root, str(request.param))
        found.start()
        try:
            yield found
        finally:
            assert found.server is not None
            code = found.server.stop()
        assert code == 0, found.server.log


def make_pod(name: str, script: str, *, main: Object | None = None, **spec: object) -> Object:
    container = {"name": "main", "image": "python:3.11", "command": ["/bin/sh", "-c", script], **(main or {})}
    meta = {"name": name, "namespace": "default"}
    full = {"restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": full}


async def wait_for(client: Client, gvr: GVR, name: str, wanted: Callable[[Object], object]) -> Object:
    options = WatchOptions(field_selector=f"metadata.name={name}")
    async with client.watch(gvr, "default", options) as events:
        async for event in events:
            if event.type != "DELETED" and wanted(event.object):
                return event.object
    raise AssertionError("the watch ended")


async def read_log(client: Client, name: str) -> str:
    return b"".join([piece async for piece in client.logs(name, "default", LogOptions())]).decode()


async def remove(client: Client, gvr: GVR, name: str) -> None:
    await client.delete(gvr, name, "default")
    while True:
        try:
            await client.get(gvr, name, "default")
        except NotFound:
            return
        await asyncio.sleep(0.05)


def make_trainjob(name: str) -> Object:
    env = {"JOB": name, "MASTER": f"{name}-node-0-0.{name}", "MASTER_PORT": "29500"}
    trainer = {
        "numNodes": 2,
        "command": ["python3", "-c", RENDEZVOUS],
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer},
    }


def add_meeting(trainjob: Object, place: Place) -> Object:
    """A directory that both jobs see."""
    volume = {"name": "meeting", "hostPath": {"path": str(place.root / "meeting")}}
    mount = {"name": "meeting", "mountPath": "/meeting"}
    override = {
        "targetJobs": [{"name": "node"}],
        "spec": {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": [mount]}]},
    }
    trainjob["spec"]["podTemplateOverrides"] = [override]
    return trainjob


def is_decided(trainjob: Object) -> bool:
    return any(find_condition(list_conditions(trainjob), kind) for kind in ("Complete", "Failed"))


def test_two_jobs_use_the_same_port_at_once(place: Place) -> None:
    """With a network of their own each; on the plain level each job is given another port in its place, and told so."""

    async def test(client: Client) -> None:
        for name in ("one", "two"):
            await client.create(TRAIN_JOBS, add_meeting(make_trainjob(name), place), "default")
        for name in ("one", "two"):
            trainjob = await wait_for(client, TRAIN_JOBS, name, is_decided)
            found = find_condition(list_conditions(trainjob), "Complete")
            assert found is not None and found["status"] == "True", trainjob["status"]
            pods = (await client.list(PODS, "default")).items
            [first] = [
                pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"].startswith(f"{name}-node-0-0-")
            ]
            assert await read_log(client, first) == f"met {name}\n"
        said = [event["message"] for event in (await client.list(EVENTS, "default")).items]
        assert any("port 29500 became" in text for text in said) == (place.isolation == "plain")
        for name in ("one", "two"):
            await remove(client, TRAIN_JOBS, name)

    place.run(test)


def test_a_pod_has_its_volumes_its_log_and_leaves_with_them(place: Place) -> None:
    async def test(client: Client) -> None:
        content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "text"}, "data": {"a": "from the map"}}
        await client.create(CONFIG_MAPS, content, "default")
        mounts = [{"name": "scratch", "mountPath": "/tm-scratch"}, {"name": "text", "mountPath": "/tm-text"}]
        volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "text", "configMap": {"name": "text"}}]
        script = (
            "cat /tm-text/a; echo; echo kept > /tm-scratch/x; cat /tm-scratch/x; id -u; echo why > /dev/termination-log"
        )
        pod = await client.create(
            PODS, make_pod("v", script, main={"volumeMounts": mounts}, volumes=volumes), "default"
        )
        ended = get_ended(await wait_for(client, PODS, "v", is_over))
        assert (ended["exitCode"], ended["message"]) == (0, "why\n"), await read_log(client, "v")
        assert (await read_log(client, "v")).split("\n")[:2] == ["from the map", "kept"]
        assert not Path("/tm-scratch").exists() and not Path("/tm-text").exists()
        await remove(client, PODS, "v")
        directory = place.root / "home" / "pods" / pod["metadata"]["uid"]
        while directory.exists():
            await asyncio.sleep(0.02)

    place.run(test)


def test_what_the_level_cannot_give_is_named(place: Place) -> None:
    async def test(client: Client) -> None:
        await client.create(PODS, make_pod("p", "true", main={"securityContext": {"privileged": True}}), "default")
        pod = await wait_for(client, PODS, "p", is_over)
        assert pod["status"]["reason"] == "Unsupported" and "privileged" in pod["status"]["message"]
        await client.create(PODS, make_pod("u", "id -u", main={"securityContext": {"runAsUser": 4321}}), "default")
        assert get_ended(await wait_for(client, PODS, "u", is_over))["exitCode"] == 0
        said = [event["message"] for event in (await client.list(EVENTS, "default")).items]
        if place.isolation == "plain":
            assert await read_log(client, "u") == f"{ORDINARY}\n"
            assert any(f"runAsUser 4321 became {ORDINARY}" in text for text in said)
        else:
            assert await read_log(client, "u") == "4321\n"
        for name in ("p", "u"):
            await remove(client, PODS, name)

    place.run(test)


def test_a_pod_outlives_its_server_and_is_adopted(place: Place) -> None:
    """The last one here: the server that it starts ends with it."""
    script = "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo done; exit 3"
    made: list[Object] = []

    async def begin(client: Client) -> None:
        made.append(await client.create(PODS, make_pod("a", script), "default"))
        await wait_for(client, PODS, "a", has_phase("Running"))

    async def finish(client: Client) -> None:
        pod = await wait_for(client, PODS, "a", is_over)
        assert (get_ended(pod)["exitCode"], pod["status"]["containerStatuses"][0]["restartCount"]) == (3, 0)
        assert await read_log(client, "a") == "begun\ndone\n"
        await remove(client, PODS, "a")

    place.run(begin)
    assert place.server is not None
    place.server.kill()
    (place.root / "home" / "pods" / made[0]["metadata"]["uid"] / "work" / "go").touch()
    place.start()
    try:
        place.run(finish)
    finally:
        assert place.server.stop() == 0
