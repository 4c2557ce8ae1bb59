"""SIGKILL of the server at every step from a job's end to the last word about it: neither a loss nor a duplicate.

One job goes through all of them: each life of the server dies at the next step, while it makes up for the one before.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.server import NotStarted, clean_environ, command, launch_server
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

pytestmark = pytest.mark.crash

STEPS = (
    "history.before_logs",
    "history.before_record",
    "history.after_record",
    "retention.before_delete",
    "retention.after_delete",
    "history.before_last_word",
    "history.after_last_word",
)
LIMIT = 60

TRAINJOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "victim", "namespace": "default"},
    "spec": {
        "runtimeRef": {"name": "plain"},
        "trainer": {"numNodes": 1, "command": ["sh", "-c", "echo only once"]},
        "ttlSecondsAfterFinished": 0,
    },
}


def history(home: Path, *words: str) -> str:
    arguments = command("history", *words, "--home", str(home))
    done = subprocess.run(arguments, env=clean_environ(), capture_output=True, text=True, check=True)
    return done.stdout


async def wait_until_nothing_is_left(kubeconfig: Path, home: Path) -> None:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        async with asyncio.timeout(LIMIT):
            while [
                one for gvr in (TRAIN_JOBS, JOB_SETS, JOBS, PODS) for one in (await client.list(gvr, "default")).items
            ]:
                await asyncio.sleep(0.1)
            while [path for path in (home / "pods").iterdir() if not path.name.startswith(".")]:
                await asyncio.sleep(0.1)
            while not json.loads(await asyncio.to_thread(history, home, "list", "-o", "json"))[0]["deletion"]:
                await asyncio.sleep(0.1)
    finally:
        await client.close()


async def submit(kubeconfig: Path) -> None:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        await client.create(TRAIN_JOBS, TRAINJOB, "default")
    finally:
        await client.close()


def live_until_killed(home: Path, step: str) -> None:
    first = step == STEPS[0]
    try:
        server = launch_server(home, environ={"TRAINMASTER_FAILPOINTS": f"{step}=kill"})
    except NotStarted as error:
        # It makes up for what was left while it starts, and may be dead before it is ready.
        assert not first and f"ended with {-signal.SIGKILL}" in str(error)
        return
    try:
        if first:
            asyncio.run(submit(server.kubeconfig))
        assert server.process.wait(LIMIT) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{step} was never reached:\n{server.log[-3000:]}") from None
    finally:
        server.kill()


def test_a_job_that_dies_with_the_server_at_every_step_is_deleted_once_and_recorded_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for step in STEPS:
        live_until_killed(home, step)
    server = launch_server(home)
    try:
        asyncio.run(wait_until_nothing_is_left(server.kubeconfig, home))
        server.stop()
    finally:
        server.kill()
    [line] = json.loads(history(home, "list", "-o", "json"))
    assert (line["name"], line["state"]) == ("victim", "Complete")
    assert history(home, "logs", "victim") == "only once\n"
