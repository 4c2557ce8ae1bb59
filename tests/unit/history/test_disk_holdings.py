"""What the jobs of a namespace left on the disk is found for its budget, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.unit.history.test_archive import make_record
from trainmaster.history.archive import Archive
from trainmaster.history.disk_holdings import list_directories

pytestmark = pytest.mark.unit


def test_finished_and_open_jobs_of_the_namespace_are_found(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    record = make_record("u1")
    archive.put([record])
    there = orjson.dumps({"metadata": {"namespace": record.namespace, "name": "b"}})
    archive.note({"u2": there, "u3": orjson.dumps({"metadata": {"namespace": "bob"}})}, {"js2": "u2", "js3": "u3"})
    found = {str(path.relative_to(tmp_path)) for path in list_directories(tmp_path, record.namespace)}
    assert {"results/u1", "results/u2", "logs/js2"} <= found
    assert not any("u3" in path or "js3" in path for path in found)
    archive.close()


def test_without_an_archive_nothing_is_kept(tmp_path: Path) -> None:
    assert list_directories(tmp_path / "nowhere", "default") == ()
