"""A job outlives its control plane: killed with SIGKILL, started again, and the job ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import start_server
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.client.contract import Client, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

pytestmark = pytest.mark.node

SCRIPT = "echo started >> starts; while [ ! -e go ]; do sleep 0.02; done; exit $CODE"


def make_trainjob(code: int) -> Object:
    trainer = {
        "numNodes": 1,
        "image": "i",
        "command": ["/bin/sh", "-c", SCRIPT],
        "env": [{"name": "CODE", "value": str(code)}],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer},
    }


async def wait_for(client: Client, gvr: Any, wanted: Callable[[Object], Any]) -> Object:
    async with asyncio.timeout(60), client.watch(gvr, "default", WatchOptions()) as events:
        async for event in events:
            if event.type in ("ADDED", "MODIFIED") and wanted(event.object):
                return event.object
    raise AssertionError("the watch ended")


def is_running(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def is_finished(trainjob: Object) -> bool:
    return any(entry["type"] in ("Complete", "Failed") for entry in trainjob.get("status", {}).get("conditions", []))


async def submit(kubeconfig: Path) -> Object:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        await client.create(TRAIN_JOBS, make_trainjob(0), "default")
        return await wait_for(client, PODS, is_running)
    finally:
        await client.close()


def test_a_running_pod_is_taken_over_and_not_started_again(tmp_path: Path) -> None:
    """Without a shim its exit code is lost, which is said, and the gang restarts; nothing runs twice at once."""

    async def finish(kubeconfig: Path, first: Object) -> None:
        client = HttpClient(load_kubeconfig([kubeconfig]))
        try:
            pod = await client.get(PODS, first["metadata"]["name"], "default")
            assert is_running(pod), "the process lives, so the Pod does"
            work = home / "pods" / first["metadata"]["uid"] / "work"
            assert (work / "starts").read_text() == "started\n"
            (work / "go").touch()
            ended = await wait_for(client, PODS, lambda pod: pod["status"].get("phase") == "Failed")
            state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
            assert (state["exitCode"], state["reason"]) == (137, "ContainerStatusUnknown")
            assert "exit code is not known" in state["message"]
            second = await wait_for(client, PODS, lambda pod: is_running(pod) and pod["metadata"]["uid"] != ended_uid)
            (home / "pods" / second["metadata"]["uid"] / "work" / "go").touch()
            trainjob = await wait_for(client, TRAIN_JOBS, is_finished)
            assert trainjob["status"]["conditions"][0]["type"] == "Complete"
            jobset = await client.get(JOB_SETS, "job", "default")
            assert jobset["status"]["restarts"] == 1
        finally:
            await client.close()

    home = tmp_path / "home"
    with start_server(home) as server:
        first = asyncio.run(submit(server.kubeconfig))
        ended_uid = first["metadata"]["uid"]
        server.kill()
    with start_server(home) as server:
        asyncio.run(finish(server.kubeconfig, first))
