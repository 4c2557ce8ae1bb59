"""What is in the ConfigMap with the code of a job."""

from __future__ import annotations

import base64
import gzip
import io
import tarfile

import pytest

from trainmaster.jobs.code_files import CodeMapReference
from trainmaster.jobs.compose.carried import FILE
from trainmaster.rest.services.files.code_maps import read_code_files

pytestmark = pytest.mark.unit


def pack(files: dict[str, bytes], *links: str) -> str:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    return base64.b64encode(gzip.compress(raw.getvalue())).decode()


def test_files_have_the_paths_that_the_program_sees() -> None:
    content = {"data": {"file-0": "print(1)"}, "binaryData": {"file-1": base64.b64encode(b"\xff").decode()}}
    found = read_code_files(content, CodeMapReference("a-script", {"file-0": "train.py", "file-1": "data/x.bin"}))
    assert found == {"train.py": b"print(1)", "data/x.bin": b"\xff"}


def test_packed_code_is_unpacked_without_its_links() -> None:
    config_map = {"binaryData": {FILE: pack({"./train.py": b"print(1)", "pkg/a.py": b""}, "evil")}}
    assert read_code_files(config_map, CodeMapReference("x")) == {"train.py": b"print(1)", "pkg/a.py": b""}


@pytest.mark.parametrize("packed", ["", "!!!", base64.b64encode(b"no gzip").decode(), pack({"a": b"1"})[:60]])
def test_what_is_damaged_has_no_files(packed: str) -> None:
    assert set(read_code_files({"binaryData": {FILE: packed}}, CodeMapReference("x"))) <= {FILE, "a"}


def test_a_bomb_is_read_only_in_part() -> None:
    config_map = {"binaryData": {FILE: pack({"a.py": b"1", "zeros": b"\0" * (80 << 20), "b.py": b"2"})}}
    assert set(read_code_files(config_map, CodeMapReference("x"))) == {"a.py"}
