"""Exports a record: as a manifest that can be submitted again, or as one file with everything."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from trainmaster.api.labels import DERIVED
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAINING_RUNTIMES
from trainmaster.api.status import AlreadyExists
from trainmaster.api.training import snapshots
from trainmaster.client.contract import Client
from trainmaster.history import rendering
from trainmaster.history.curves.series import Point
from trainmaster.history.logs import ArchivedLog
from trainmaster.history.record import JobRecord
from trainmaster.jobs import manifests
from trainmaster.jobs.code_maps import create_again
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.runtimes import TrainingRuntime


def build_manifest(record: JobRecord, name: str) -> Object:
    """The TrainJob as its author wrote it, with this name."""
    return manifests.build_manifest(record.document["trainjob"], name)


def find_derived(record: JobRecord) -> Object | None:
    """The runtime that was derived for this job. It was deleted when no longer used, and must be created again."""
    reference = read_training_job(record.document["trainjob"]).runtime
    text = record.document.get("runtime")
    if not text or reference.get("kind") != "TrainingRuntime":
        return None
    runtime = snapshots.read(text)
    if TrainingRuntime(runtime).labels.get(DERIVED) != "true":
        return None
    meta = runtime["metadata"]
    kept = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
    return {**runtime, "metadata": {**kept, "namespace": record.namespace}}


async def submit(client: Client, manifest: Object, derived: Object | None = None) -> Object:
    namespace = manifest["metadata"]["namespace"]
    if derived is not None:
        with suppress(AlreadyExists):  # another job still uses it
            await client.create(TRAINING_RUNTIMES, derived, namespace)
    return await create_again(client, read_training_job(manifest).gvr, manifest, namespace)


def write(path: Path, record: JobRecord, logs: Sequence[ArchivedLog], points: Sequence[Point] = ()) -> None:
    """Writes a .tar.gz to a temporary file, which is renamed when complete."""
    temporary = path.with_name(path.name + ".part")
    root = record.name
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            option = orjson.OPT_INDENT_2
            _add(
                archive,
                f"{root}/record.json",
                orjson.dumps(rendering.to_full_data(record, logs, points), option=option),
            )
            manifest = build_manifest(record, record.name)
            _add(archive, f"{root}/trainjob.json", orjson.dumps(manifest, option=option))
            if record.document.get("runtime"):
                _add(archive, f"{root}/runtime.yaml", record.document["runtime"].encode())
            for log in logs:
                for piece in log.pieces:
                    place = log.place
                    rank = f"{place.job}-{place.job_index}-{place.index}{place.uid and f'-{place.uid}'}"
                    name = f"{root}/logs/{place.attempt}/{rank}/{piece.name}"
                    archive.add(piece, name)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o600
    archive.addfile(info, io.BytesIO(content))
