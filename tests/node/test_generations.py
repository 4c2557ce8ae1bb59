"""None of a gang's new generation starts before the old one is gone, even when that ignores every request to end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.server import start_server
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.client.contract import WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

pytestmark = pytest.mark.node

SCRIPT = """
for pid in $(cat pids.$((ATTEMPT - 1)) 2>/dev/null); do kill -0 $pid 2>/dev/null && echo $pid >> overlap; done
[ "$ATTEMPT" = 1 ] && exit 0
trap '' TERM
echo $$$$ >> pids.0
while [ "$(wc -l < pids.0)" != 2 ]; do sleep 0.02; done
[ "$JOB_COMPLETION_INDEX" = 0 ] && exit 1
while :; do sleep 0.02; done
"""


def make_jobset(directory: Path) -> Object:
    attempt = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
    container = {
        "name": "node",
        "image": "i",
        "command": ["/bin/sh", "-c", SCRIPT],
        "workingDir": str(directory),
        "env": [{"name": "ATTEMPT", "valueFrom": attempt}],
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "completionMode": "Indexed"}
    spec = {
        "failurePolicy": {"maxRestarts": 1},
        "replicatedJobs": [{"name": "node", "template": {"spec": {**job, "template": {"spec": pod}}}}],
    }
    meta = {"name": "gang", "namespace": "default"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}


def test_the_new_generation_finds_no_process_of_the_old_one(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()

    async def main(kubeconfig: Path) -> Object:
        client = HttpClient(load_kubeconfig([kubeconfig]))
        try:
            await client.create(JOB_SETS, make_jobset(work), "default")
            async with asyncio.timeout(60), client.watch(JOB_SETS, "default", WatchOptions()) as events:
                async for event in events:
                    if (event.object.get("status") or {}).get("terminalState"):
                        return event.object
            raise AssertionError("the watch ended")
        finally:
            await client.close()

    # Plain: processes of one Pod can look for those of another.
    with start_server(tmp_path / "home", environ={"TRAINMASTER_NODE_ISOLATION": "plain"}) as server:
        jobset = asyncio.run(main(server.kubeconfig))
    assert (jobset["status"]["terminalState"], jobset["status"]["restarts"]) == ("Completed", 1)
    assert len((work / "pids.0").read_text().split()) == 2
    assert not (work / "overlap").exists()
