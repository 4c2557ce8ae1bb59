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


def test_a_running_job_finishes_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """The control plane is killed twice: the process lives on, is adopted, and its exit code is not lost."""
    home = tmp_path / "home"

    def get_work(pod: Object) -> Path:
        return home / "pods" / str(pod["metadata"]["uid"]) / "work"

    async def look(kubeconfig: Path, first: Object) -> None:
        client = HttpClient(load_kubeconfig([kubeconfig]))
        try:
            pod = await client.get(PODS, first["metadata"]["name"], "default")
            assert is_running(pod), "the process lives, so the Pod does"
            assert (get_work(first) / "starts").read_text() == "started\n"
        finally:
            await client.close()

    async def finish(kubeconfig: Path) -> None:
        client = HttpClient(load_kubeconfig([kubeconfig]))
        try:
            trainjob = await wait_for(client, TRAIN_JOBS, is_finished)
            assert trainjob["status"]["conditions"][0]["type"] == "Complete"
            jobset = await client.get(JOB_SETS, "job", "default")
            assert not jobset["status"].get("restarts")
        finally:
            await client.close()

    with start_server(home) as server:
        first = asyncio.run(submit(server.kubeconfig))
        server.kill()
    with start_server(home) as server:
        asyncio.run(look(server.kubeconfig, first))
        server.kill()
    # It ends while nobody looks.
    (get_work(first) / "go").touch()
    with start_server(home) as server:
        asyncio.run(finish(server.kubeconfig))
