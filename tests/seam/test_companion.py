"""Retention and the janitor beside upstream's Trainer, on upstream's kinds: the report's reproduction on a cluster."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.flow.stage import make_trainjob as make_own_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.stage import IDENTITY, Site, grant_own, kube_stage, open_site
from trainmaster.api.lifecycle.term_names import TTL_ANNOTATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main as run_command
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.operator.mode import OperatorSettings, running_operator
from trainmaster.operator.rights import Duties

pytestmark = pytest.mark.kube

CHAIN = (TRAIN_JOBS, JOB_SETS, JOBS, PODS)
LIMIT = 120


def make_trainjob(name: str, ttl: int | None = None) -> Object:
    annotations = {} if ttl is None else {TTL_ANNOTATION: str(ttl)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 1, "command": ["sh", "-c", "sleep 5; exit 0"]},
        },
    }


@asynccontextmanager
async def companion(site: Site, history: Path | None) -> AsyncIterator[None]:
    """As its service account, with the companion's role and nothing else."""
    settings = OperatorSettings((site.namespace,), site.namespace, companion=True, history=history)
    clock, ids = SystemClock(), SystemIds()
    await grant_own(site.client, site.namespace, IDENTITY, Duties(companion=True))
    async with running_operator(site.client.as_user(IDENTITY), settings, clock=clock, ids=ids):
        yield


async def list_all(site: Site, gvr: GVR) -> list[Object]:
    return list((await site.client.list(gvr, site.namespace)).items)


async def count(site: Site) -> tuple[int, ...]:
    return tuple([len(await list_all(site, gvr)) for gvr in CHAIN])


async def wait_for(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await check():
            await asyncio.sleep(0.2)


async def wait_finished(site: Site, names: int) -> None:
    async def are_finished() -> bool:
        trainjobs = await list_all(site, TRAIN_JOBS)
        ended = [one for one in trainjobs if any(c["type"] == "Complete" for c in _conditions(one))]
        return len(ended) == names

    await wait_for(are_finished)


def _conditions(obj: Object) -> list[Object]:
    return list((obj.get("status") or {}).get("conditions") or [])


def command(*arguments: str) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    code = run_command(arguments, CommandContext({}, out, err))
    return code, out.getvalue() + err.getvalue()


def test_after_the_ttl_in_the_annotation_everything_is_gone_and_the_record_stays(
    trainer_cluster: KubeCluster, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_site(trainer_cluster) as site, companion(site, tmp_path):
            await site.client.create(TRAIN_JOBS, make_trainjob("kept"), site.namespace)
            await site.client.create(TRAIN_JOBS, make_trainjob("reported", ttl=2), site.namespace)
            await wait_finished(site, 2)
            ended = await site.client.get(TRAIN_JOBS, "reported", site.namespace)
            assert "retention" not in ended["status"], "upstream's CRD drops the field"

            async def is_gone() -> bool:
                return await count(site) == (1, 1, 1, 1)

            await wait_for(is_gone)
            assert [one["metadata"]["name"] for one in await list_all(site, TRAIN_JOBS)] == ["kept"]

            # A TTL that comes after the end counts from the end all the same.
            change = {"metadata": {"annotations": {TTL_ANNOTATION: "0"}}}
            await site.client.patch(TRAIN_JOBS, "kept", PatchType.MERGE, change, site.namespace)

            async def is_empty() -> bool:
                return await count(site) == (0, 0, 0, 0)

            await wait_for(is_empty)
            namespace = site.namespace
            await wait_for(lambda: _is_buried(tmp_path, namespace))

    asyncio.run(main())
    code, text = command("history", "list", "--archive", str(tmp_path), "-o", "json")
    assert code == 0
    lines = {line["name"]: line for line in json.loads(text)}
    assert set(lines) == {"kept", "reported"}
    assert {line["state"] for line in lines.values()} == {"Complete"}
    code, text = command("history", "get", "reported", "-n", lines["reported"]["namespace"], "--archive", str(tmp_path))
    assert code == 0 and "its time after the end was over" in text
    assert "no log of reported-node-0-0" in text, "kwok has no logs to hand out, and the record says so"


async def _is_buried(directory: Path, namespace: str) -> bool:
    _, text = await asyncio.to_thread(command, "history", "list", "--archive", str(directory), "-o", "json")
    return all(line["deletion"] for line in json.loads(text) if line["namespace"] == namespace)


def test_cleanup_finds_and_deletes_finished_jobs_and_orphans_beside_upstream(trainer_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with open_site(trainer_cluster) as site:
            for name in ("first", "orphaned"):
                await site.client.create(TRAIN_JOBS, make_trainjob(name), site.namespace)
            await wait_finished(site, 2)
            options = DeleteOptions(propagation="Orphan")
            await site.client.delete(TRAIN_JOBS, "orphaned", site.namespace, options)

            async def is_orphaned() -> bool:
                jobset = await site.client.get(JOB_SETS, "orphaned", site.namespace)
                return not jobset["metadata"].get("ownerReferences")

            await wait_for(is_orphaned)
            where = ["--kubeconfig", str(trainer_cluster.kubeconfig), "-n", site.namespace]
            code, text = await asyncio.to_thread(command, "doctor", "trainjob", "first", *where, "-o", "json")
            assert code == 1 and [one["check"] for one in json.loads(text)["findings"]] == ["ttl"], text
            code, text = await asyncio.to_thread(command, "cleanup", *where, "--dry-run")
            assert code == 0 and "first" in text and "orphaned" not in text
            assert await count(site) == (1, 2, 2, 2), "a dry run deletes nothing"
            code, text = await asyncio.to_thread(command, "cleanup", *where, "--orphans", "--yes")
            assert code == 0 and "removed 1 of 1" in text and "orphaned" in text
            code, text = await asyncio.to_thread(command, "cleanup", *where, "--yes")
            assert code == 0 and "removed 1 of 1" in text

            async def is_empty() -> bool:
                return await count(site) == (0, 0, 0, 0)

            await wait_for(is_empty)
            snapshots = [one for one in await list_all(site, CONFIG_MAPS) if "snapshot" in one["metadata"]["name"]]
            assert [one["metadata"]["name"] for one in snapshots] == ["orphaned-runtime-snapshot"], "kept on purpose"

    asyncio.run(main())


def test_beside_our_own_controller_the_field_counts_and_the_status_says_when(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with kube_stage(seam_cluster) as stage:
            trainjob = make_own_trainjob(ttlSecondsAfterFinished=3600)
            await stage.submit(trainjob)
            kept = await stage.wait_for(TRAIN_JOBS, "first", lambda one: (one.get("status") or {}).get("retention"))
            assert kept["status"]["retention"]["source"] == "TrainJob spec.ttlSecondsAfterFinished"
            await stage.edit(TRAIN_JOBS, "first", {"spec": {"ttlSecondsAfterFinished": 1}})

            async def is_gone() -> bool:
                return not [one for gvr in CHAIN for one in await stage.list_all(gvr)]

            await wait_for(is_gone)

    asyncio.run(main())
