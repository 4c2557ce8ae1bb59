"""The keeper on a whole plant in virtual time: no way of deleting a job loses its record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.labels import SCRIPT_OF
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.apiserver import stored
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.retention import ARCHIVE
from trainmaster.history import restores
from trainmaster.history.archive import Archive, Filter
from trainmaster.history.gathering import ViewGather
from trainmaster.history.keeper import UNSEEN, Keeper
from trainmaster.history.record import JobRecord, RecordedDeletion, RecordSources, build_record
from trainmaster.history.restores import find_restore, note_restore
from trainmaster.history.results import find_code
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Store
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Late:
    """Stands for the keeper where the controllers are built before it is."""

    keeper: Keeper

    def is_archived(self, uid: str) -> bool:
        return self.keeper.is_archived(uid)

    def find_trouble(self, uid: str) -> str | None:
        return self.keeper.find_trouble(uid)

    async def archive(self, trainjob: Object) -> bool:
        return await self.keeper.archive(trainjob)


@asynccontextmanager
async def running(
    directory: Path, *, seconds: float = 5.0, store: Store | None = None
) -> AsyncIterator[tuple[Plant, Archive]]:
    late = Late()
    context = LifecycleContext(ledger=late)
    controllers = (retention.build_controller(context), limits.build_controller(context))
    node = ScriptedNode(seconds=seconds)
    archive = Archive.open(directory)
    async with running_plant(node, lifecycle=controllers, effects={ARCHIVE: late.archive}, store=store) as plant:
        gather = ViewGather(plant.cluster.view, plant.cluster.view)
        measured: set[str] = set()

        def measure_once(pod: Object) -> int:
            """As with a Pod directory that is gone at the second time."""
            uid = pod["metadata"]["uid"]
            is_new = uid not in measured
            measured.add(uid)
            return 700 if is_new else 0

        late.keeper = Keeper(
            archive,
            plant.client,
            gather,
            plant.cluster.clock,
            measure_memory=measure_once,
            find_deleter=lambda uid: ("me", "test"),
        )
        late.keeper.find_code = gather.find_code
        async with Scope("test") as scope, late.keeper.running():
            scope.spawn_forever(gather.follow(), name="test.gather")
            yield plant, archive
    archive.close()


def make_end(at: str) -> Object:
    return {"type": "Complete", "status": "True", "lastTransitionTime": at, "reason": "r", "message": "m"}


def run(directory: Path, body: Callable[[Plant, Archive], Awaitable[None]], seconds: float = 5.0) -> None:
    async def main() -> None:
        async with running(directory, seconds=seconds) as (plant, archive):
            await body(plant, archive)

    run_virtual(main(), limit=86_400)


async def wait_until_gone(plant: Plant, name: str = "first") -> None:
    while True:
        try:
            await plant.client.get(TRAIN_JOBS, name, "default")
        except NotFound:
            return
        await asyncio.sleep(1)


async def wait_for_record(archive: Archive, **wanted: object) -> JobRecord:
    while not (found := archive.select(Filter(**wanted))):  # type: ignore[arg-type]
        await asyncio.sleep(1)
    record = archive.find(found[0].uid)
    assert record is not None
    return record


def test_a_job_that_is_deleted_while_it_runs_keeps_its_code(tmp_path: Path) -> None:
    """The ConfigMap is owned by the job, so both may be gone before the deletion is seen."""

    async def body(plant: Plant, archive: Archive) -> None:
        volume = {"name": "code", "configMap": {"name": "first-script"}}
        overrides = [{"targetJobs": [{"name": "node"}], "spec": {"volumes": [volume]}}]
        meta = {"name": "first-script", "namespace": "default", "labels": {SCRIPT_OF: "first"}}
        script = {"metadata": meta, "data": {"train.py": "print(1)"}}
        await plant.apply((CONFIG_MAPS, script), (TRAIN_JOBS, make_trainjob(podTemplateOverrides=overrides)))
        await asyncio.sleep(3)
        uid = (await plant.client.get(TRAIN_JOBS, "first", "default"))["metadata"]["uid"]
        await plant.client.delete(CONFIG_MAPS, "first-script", "default")
        await plant.client.delete(TRAIN_JOBS, "first", "default")
        await wait_for_record(archive, deleted=True)
        kept = find_code(tmp_path, uid)
        assert kept is not None and kept["data"] == {"train.py": "print(1)"}

    run(tmp_path, body, seconds=600)


def test_a_job_that_goes_by_its_ttl_leaves_a_complete_record(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob(ttlSecondsAfterFinished=60)))
        await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        before = await wait_for_record(archive, deleted=False)
        assert (before.state, before.deletion) == ("Complete", None)
        assert len(before.document["pods"]) == 2
        assert before.document["runtime"]
        await wait_until_gone(plant)
        after = await wait_for_record(archive, deleted=True)
        assert after.uid == before.uid
        assert (after.state, after.finished) == ("Complete", before.finished)
        assert after.deletion is not None and (after.deletion.by, after.deletion.why) == ("me", "test")
        assert [pod["memory"] for pod in after.document["pods"]] == [700, 700]
        assert len(archive.list_jobsets(after.uid)) == 1
        assert archive.list_open() == {}

    run(tmp_path, body)


def test_a_running_job_that_somebody_deletes_is_recorded_as_deleted(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        await asyncio.sleep(3)
        await plant.client.delete(TRAIN_JOBS, "first", "default")
        record = await wait_for_record(archive, deleted=True)
        assert record.state == "Deleted"
        assert len(record.document["pods"]) == 2

    run(tmp_path, body, seconds=500)


def test_jobs_of_a_namespace_that_is_deleted_are_recorded(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await plant.client.create(NAMESPACES, space)
        for name in ("one", "two"):
            trainjob = make_trainjob(name=name)
            trainjob["metadata"]["namespace"] = "team"
            await plant.apply((TRAIN_JOBS, trainjob))
        await asyncio.sleep(3)
        await plant.client.delete(NAMESPACES, "team")
        while len(archive.select(Filter(namespace="team", deleted=True))) < 2:
            await asyncio.sleep(1)

    run(tmp_path, body, seconds=500)


def test_a_job_that_vanished_while_nobody_looked_is_recorded_at_the_next_start(tmp_path: Path) -> None:
    async def main() -> None:
        store = MemoryStore()
        async with running(tmp_path, seconds=500, store=store) as (plant, archive):
            await plant.apply((TRAIN_JOBS, make_trainjob()))
            while not archive.list_open():
                await asyncio.sleep(1)
        async with running_plant(ScriptedNode(), store=store, runtimes=False) as plant:
            await plant.client.delete(TRAIN_JOBS, "first", "default")
            await wait_until_gone(plant)
        async with running(tmp_path, store=store) as (plant, archive):
            record = await wait_for_record(archive, deleted=True)
            assert record.state == "Deleted"
            assert record.document["gaps"] == [UNSEEN]

    run_virtual(main(), limit=86_400)


def test_a_job_is_noted_when_the_server_stops(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        await asyncio.sleep(0.1)
        assert not archive.list_open(), "notes are written a second late"

    run(tmp_path, body)
    archive = Archive.open(tmp_path, read_only=True)
    assert [job["metadata"]["name"] for job in archive.list_open().values()] == ["first"]
    archive.close()


def test_records_follow_the_objects_of_a_backup_that_was_restored(tmp_path: Path) -> None:
    """One job is not in the backup, one was deleted since while it ran, one was deleted since after its end."""

    async def main() -> None:
        old = MemoryStore()
        async with running(tmp_path, seconds=500, store=old) as (plant, archive):
            for name in ("late", "deleted"):
                await plant.apply((TRAIN_JOBS, make_trainjob(name=name)))
            while len(archive.list_open()) < 2:
                await asyncio.sleep(1)
            deleted = await plant.client.get(TRAIN_JOBS, "deleted", "default")
            await plant.client.delete(TRAIN_JOBS, "deleted", "default")
            await wait_for_record(archive, deleted=True)
        ended = dict(deleted, metadata=dict(deleted["metadata"], name="ended", uid="ended-uid"))
        ended["status"] = {"conditions": [make_end("2026-01-01T00:01:00Z")]}
        archive = Archive.open(tmp_path)
        archive.put([build_record(RecordSources(ended), RecordedDeletion("2026-01-01T00:02:00Z", "ttl"))])
        archive.close()
        note_restore(tmp_path, "2026-01-02T00:00:00Z", "monday.db")
        restored = MemoryStore()
        for job in (deleted, ended):
            restored.put(TRAIN_JOBS.collection, f"default/{job['metadata']['name']}", stored.dump(job))
        async with running(tmp_path, seconds=500, store=restored) as (plant, archive):
            record = await wait_for_record(archive, name="late")
            why = RecordedDeletion("2026-01-02T00:00:00Z", "trainmaster restore", "not in the backup monday.db")
            assert (record.state, record.deletion) == ("Deleted", why)
            assert record.document["gaps"] == [restores.UNSEEN]
            while find_restore(tmp_path) is not None:
                await asyncio.sleep(1)
            assert archive.select(Filter(name="deleted")) == [], "it has not ended"
            (line,) = archive.select(Filter(name="ended"))
            assert (line.state, line.deletion) == ("Complete", None)
            await plant.client.delete(TRAIN_JOBS, "deleted", "default")
            record = await wait_for_record(archive, name="deleted")
            assert record.deletion is not None and record.deletion.by == "me"

    run_virtual(main(), limit=86_400)


def test_two_jobs_of_one_name_are_two_records(tmp_path: Path) -> None:
    async def body(plant: Plant, archive: Archive) -> None:
        for _ in range(2):
            await plant.apply((TRAIN_JOBS, make_trainjob(ttlSecondsAfterFinished=0)))
            await wait_until_gone(plant)
        while len(archive.select(Filter(name="first", deleted=True))) < 2:
            await asyncio.sleep(1)

    run(tmp_path, body)


def test_a_job_that_was_archived_and_vanished_before_it_was_noted_gets_its_last_word(tmp_path: Path) -> None:
    """A crash between the delete and the last word, within the second by which notes lag."""
    archive = Archive.open(tmp_path)
    trainjob = make_trainjob()
    meta = {"uid": "gone", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "5"}
    trainjob["metadata"] |= meta
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    archive.put([build_record(RecordSources({**trainjob, "status": {"conditions": [ended]}}))])
    archive.close()

    async def body(plant: Plant, archive: Archive) -> None:
        while (record := archive.find("gone")) is None or record.deletion is None:
            await plant.cluster.clock.sleep(0.1)
        assert (record.state, record.document["gaps"]) == ("Complete", [UNSEEN])

    run(tmp_path, body)
