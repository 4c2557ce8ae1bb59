"""Code goes when nobody mentions it: no object, no record, and nobody packed it lately."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.history.test_archive import GONE, make_trainjob
from trainmaster.api import code
from trainmaster.api.resources import CONFIG_MAPS, PODS
from trainmaster.bundles.packing import pack
from trainmaster.bundles.store import BundleStore
from trainmaster.history.archive import FILE, Archive
from trainmaster.history.record import RecordSources, build_record
from trainmaster.node.disk.bundle_cleanup import BundleCleanup
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Stage:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.store, self.history = BundleStore(root / "bundles"), root / "history"
        self.tidier = BundleCleanup(cluster.client, cluster.clock, self.store.root, self.history)

    def pack(self, text: str, *, days_ago: float = 2.0) -> str:
        folder = self.root / text
        folder.mkdir()
        (folder / "train.py").write_text(text)
        digest = pack(folder, self.store.root).digest
        moment = self.cluster.clock.now().timestamp() - days_ago * 86400
        os.utime(self.store.get_place(digest), (moment, moment))
        return digest

    def archive(self, digest: str) -> None:
        archive = Archive.open(self.history)
        trainjob = make_trainjob()
        trainjob["metadata"]["annotations"] = {code.CODE_DIGEST: digest}
        archive.put([build_record(RecordSources(trainjob), GONE)])
        archive.close()

    async def put_pod(self, digest: str) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [code.build_volume(digest)]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        await self.cluster.client.create(PODS, pod, "default")


def run(tmp_path: Path, test: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Stage(cluster, tmp_path))

    run_virtual(main())


def test_what_is_old_and_mentioned_nowhere_goes(tmp_path: Path) -> None:
    async def test(stage: Stage) -> None:
        unused, young = stage.pack("unused"), stage.pack("young", days_ago=0.5)
        used, recorded, shot = stage.pack("used"), stage.pack("recorded"), stage.pack("snapshot")
        await stage.put_pod(used)
        stage.archive(recorded)
        held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"runtime": f"x {shot} y"}}
        await stage.cluster.client.create(CONFIG_MAPS, held, "default")
        assert await stage.tidier.delete_unused() == [unused]
        assert stage.store.list_digests() == sorted([young, used, recorded, shot])
        assert await stage.tidier.delete_unused() == []

    run(tmp_path, test)


def test_where_history_cannot_be_read_everything_stays(tmp_path: Path) -> None:
    async def test(stage: Stage) -> None:
        digest = stage.pack("a")
        stage.history.mkdir()
        (stage.history / FILE).write_bytes(b"no database at all" * 100)
        assert await stage.tidier.delete_unused() == []
        assert stage.store.list_digests() == [digest]

    run(tmp_path, test)


def test_it_is_done_by_itself_after_a_while(tmp_path: Path) -> None:
    async def test(stage: Stage) -> None:
        stage.pack("a", days_ago=0.9)
        async with stage.tidier.running():
            await stage.cluster.clock.sleep(3600)
            assert stage.store.list_digests() != []
            await stage.cluster.clock.sleep(86400)
            assert stage.store.list_digests() == []

    run(tmp_path, test)
