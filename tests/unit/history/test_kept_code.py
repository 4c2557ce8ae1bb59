"""Code of a job that is kept beside its outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.history import purging
from trainmaster.history.results import find_code, keep_code, list_outputs

pytestmark = pytest.mark.unit

MAP = {
    "metadata": {"name": "a-script", "uid": "u", "labels": {"x": "y"}, "ownerReferences": [{}]},
    "data": {"train.py": "print(1)"},
    "immutable": True,
}


def test_code_is_kept_without_what_the_server_added(tmp_path: Path) -> None:
    assert find_code(tmp_path, "uid-1") is None
    keep_code(tmp_path, "uid-1", MAP)
    keep_code(tmp_path, "uid-1", {**MAP, "data": {"train.py": "another"}})
    found = find_code(tmp_path, "uid-1")
    assert found is not None
    assert (found["metadata"], found["data"]) == ({"name": "a-script", "labels": {"x": "y"}}, MAP["data"])


def test_it_is_no_output_counts_and_goes_with_the_record(tmp_path: Path) -> None:
    keep_code(tmp_path, "uid-1", MAP)
    assert list_outputs(tmp_path, "uid-1") == []
    assert purging.measure_results(tmp_path, "uid-1") > 0
    purging.remove_results(tmp_path, "uid-1")
    assert find_code(tmp_path, "uid-1") is None


def test_damaged_files_are_nothing(tmp_path: Path) -> None:
    keep_code(tmp_path, "uid-1", MAP)
    for raw in (b"", b"[]", b"{"):
        (tmp_path / "results" / "uid-1" / "code.json").write_bytes(raw)
        assert find_code(tmp_path, "uid-1") is None
