"""Checkpoints of a job, as REST lists them and opens their files (`trainmaster.history.checkpoints`)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from trainmaster.api.meta import Fields, Object
from trainmaster.api.training.checkpoints import read_policy
from trainmaster.history.checkpoints.keeping import explain_kept
from trainmaster.history.checkpoints.model import Checkpoint, CheckpointFile, CheckpointSource, Policy, to_printable
from trainmaster.history.checkpoints.notes import read_attempts
from trainmaster.history.checkpoints.reading import read_checkpoints
from trainmaster.history.results import RESULTS
from trainmaster.kit.clock import format_time
from trainmaster.rest.services.files.contract import FileList, JobFile
from trainmaster.shim.sandbox import beneath

MOST_LISTED = 500
_MOST_FILES = 100
"""Of one checkpoint in a list."""
MISSING = "not on a cluster: checkpoints are on volumes there, which Trainmaster does not read"


def describe_checkpoints(archive: Path, job: Fields) -> Object:
    """Blocks. Also of a deleted job."""
    uid = job["metadata"]["uid"]
    policy = Policy(*read_policy(job))
    found = read_checkpoints(archive, uid)
    items = explain_kept(found.items, policy, read_attempts(archive / RESULTS / uid).resumed)
    return {
        "items": [_describe(item) for item in items[:MOST_LISTED]],
        "count": len(items),
        "bytes": sum(item.bytes for item in items),
        "keep_last": policy.last or None,
        "keep_every": policy.every or None,
        "notes": list(found.notes),
    }


def list_checkpoint_files(archive: Path, uid: str) -> FileList:
    """All files of all checkpoints, by `name` of the checkpoint and `path` of the file. Blocks."""
    found = read_checkpoints(archive, uid)
    return FileList([_build(item, file) for item in found.items for file in item.source.files])


def _describe(item: Checkpoint) -> Object:
    files = item.source.files
    return {
        "name": item.name,
        "place": item.place,
        "format": item.format,
        "step": item.step,
        "attempt": item.attempt,
        "bytes": item.bytes,
        "modified_at": format_time(datetime.fromtimestamp(item.modified, UTC)),
        "complete": item.complete,
        "committed": item.committed,
        "problem": item.problem or None,
        "pinned": item.pinned,
        "kept": list(item.kept),
        "copied_from": item.origin[:1100] or None,
        "files": [{"path": _build_path(item, file), "bytes": file.bytes} for file in files[:_MOST_FILES]],
        "file_count": len(files),
    }


def _build(item: Checkpoint, file: CheckpointFile) -> JobFile:
    return JobFile(_build_path(item, file), file.bytes, partial(_open, item.source, file))


def _build_path(item: Checkpoint, file: CheckpointFile) -> str:
    return f"{item.name}/{to_printable(file.path)}" if file.path else item.name


def _open(source: CheckpointSource, file: CheckpointFile) -> BinaryIO:
    root = beneath.open_directory(os.fspath(source.root))
    try:
        return os.fdopen(beneath.open_file(root, source.locate(file.path)), "rb")
    finally:
        os.close(root)
