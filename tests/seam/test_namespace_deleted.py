"""A namespace with jobs is deleted while the operator works in it: it goes away, whatever its jobs were doing, their
records are kept, and the operator has nothing more to do or to complain about there."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.made import count_made
from tests.seam.stage import KwokNode, Site, open_site
from tests.seam.test_v1 import install, make_identity, wait
from trainmaster.api.meta import Object
from trainmaster.api.resources import NAMESPACES, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import PatchType
from trainmaster.history.archive import Archive
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.rights import Duties

pytestmark = pytest.mark.kube

_KEPT = "example.com/kept"
_QUIET_SECONDS = 4.0
_STARTED = ("ended", "running", "suspended", "keys", "kept")
_JOBS = (*_STARTED, "waiting")


def play(pod: Object, run: int) -> int:
    return 0 if pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] in ("ended", "home") else -1


def test_a_namespace_that_is_deleted_with_its_jobs_goes_away(
    seam_cluster: KubeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as home, open_site(seam_cluster) as lost, Scope("namespaces") as scope:
            for site in (home, lost):
                node = KwokNode(play, namespace=site.namespace)
                scope.spawn_forever(node.run(site.client, SystemClock()), name="namespaces.node")
            await install(home, Duties(history=True), "records")
            home.identity = make_identity("records")
            home.others, home.history = (lost.namespace,), tmp_path / "history"
            await home.start()
            stage = Stage(lost.client, lost.namespace, KwokNode(), home.come_to_rest)
            await fill(stage)
            await lost.client.delete(NAMESPACES, lost.namespace)
            await wait(lambda: is_only_left(stage, "kept"))
            await check_quiet(home)
            released = {"metadata": {"finalizers": None}}
            await lost.client.patch(TRAIN_JOBS, "kept", PatchType.MERGE, released, lost.namespace)
            await wait(lambda: is_gone(lost))
            own = Stage(home.client, home.namespace, KwokNode(), home.come_to_rest)
            await own.submit(make_trainjob(name="home", nodes=1))
            await own.wait_for(TRAIN_JOBS, "home", is_finished)
            assert count_made(seam_cluster, home.namespace, "jobsets") == {"home": 1}
            assert count_made(seam_cluster, lost.namespace, "jobsets") == dict.fromkeys(_STARTED, 1)

    asyncio.run(main())
    failed = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert failed == []
    assert list_recorded(tmp_path / "history") >= set(_JOBS)


async def fill(stage: Stage) -> None:
    """Jobs in every state; one is held by somebody's finalizer."""
    await stage.submit(make_trainjob(name="ended", nodes=1, ttlSecondsAfterFinished=3600))
    await stage.submit(make_trainjob(name="running", nodes=1))
    await stage.submit(make_trainjob(name="suspended", nodes=1, suspend=True))
    await stage.submit(make_trainjob(name="waiting", nodes=1, runtime="missing"))
    await stage.submit(make_trainjob(name="keys", runtime="deepspeed-distributed"))
    kept = make_trainjob(name="kept", nodes=1)
    kept["metadata"]["finalizers"] = [_KEPT]
    await stage.submit(kept)
    await stage.wait_for(TRAIN_JOBS, "ended", lambda job: job.get("status", {}).get("retention"))
    for name in ("running", "kept"):
        await stage.wait_for(TRAIN_JOBS, name, is_active)
    await stage.wait_for(TRAIN_JOBS, "suspended", lambda job: job.get("status", {}).get("conditions"))
    await stage.wait_for(TRAIN_JOBS, "waiting", lambda job: job.get("status", {}).get("waiting"))
    await stage.wait_for(TRAIN_JOBS, "keys", lambda job: job.get("status", {}).get("jobsStatus"))


def is_active(trainjob: Object) -> bool:
    return any(step.get("active") for step in trainjob.get("status", {}).get("jobsStatus") or ())


async def is_only_left(stage: Stage, name: str) -> bool:
    return {obj for _, obj in await stage.list_versions()} <= {name, "kube-root-ca.crt"}


async def check_quiet(site: Site) -> None:
    """What a finalizer holds is somebody else's: the operator asks nothing of the server because of it."""
    await site.come_to_rest()
    before = Counter(site.calls)
    await asyncio.sleep(_QUIET_SECONDS)
    asked = site.calls - before
    assert {call for call in asked if " leases " not in call and not call.startswith("WATCH ")} == set()


async def is_gone(site: Site) -> bool:
    try:
        await site.client.get(NAMESPACES, site.namespace)
    except NotFound:
        return True
    return False


def list_recorded(directory: Path) -> set[str]:
    archive = Archive.open(directory)
    try:
        return {line.name for line in archive.select()}
    finally:
        archive.close()
