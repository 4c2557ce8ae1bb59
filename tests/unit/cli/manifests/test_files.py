"""Manifests from files, directories and standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.manifests.files import read_documents

pytestmark = pytest.mark.unit


def test_a_directory_gives_its_manifests_in_order_and_standard_input_is_a_dash(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("kind: B\n")
    (tmp_path / "a.json").write_text('{"kind": "A"}')
    (tmp_path / "notes.txt").write_text("no manifest")
    context = CommandContext({}, io.StringIO(), io.StringIO(), io.StringIO("kind: C\n"))
    found = [document.obj for document in read_documents(context, [str(tmp_path), "-"])]
    assert found == [{"kind": "A"}, {"kind": "B"}, {"kind": "C"}]


def test_files_that_cannot_be_read_are_a_wrong_command_line(tmp_path: Path) -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO(), io.StringIO())
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    for name, words in (("none.yaml", "no such file"), ("binary.yaml", "no text"), ("empty", "has no manifest")):
        with pytest.raises(exits.Failure, match=words) as failure:
            read_documents(context, [str(tmp_path / name)])
        assert failure.value.code == exits.USAGE
