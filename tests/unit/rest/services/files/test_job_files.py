"""Files of jobs: what is listed, opened, hashed and shown, whatever the programs made of them."""

from __future__ import annotations

import io
import os
from functools import partial
from pathlib import Path

import pytest

from trainmaster.rest.problems import Problem
from trainmaster.rest.services.files.contract import FileList, JobFile
from trainmaster.rest.services.files.hashes import FileHashes
from trainmaster.rest.services.files.outputs import list_output_files
from trainmaster.rest.services.files.previews import TEXT_BYTES, guess_preview, read_preview

pytestmark = pytest.mark.unit

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


def make_file(content: bytes, path: str = "a.txt", size: int | None = None, mark: str = "") -> JobFile:
    opened = partial(io.BytesIO, content)
    return JobFile(path, len(content) if size is None else size, opened, (mark,) if mark else None)


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    place = tmp_path / "results" / "u1" / "outputs"
    place.mkdir(parents=True)
    (place / "model.pt").write_bytes(b"weights")
    (place / "plots").mkdir()
    (place / "plots" / "loss.png").write_bytes(PNG)
    (tmp_path / "secret").write_text("not theirs")
    (place / "out").symlink_to(tmp_path / "secret")
    (place / "up").symlink_to("../../../secret")
    (place / "latest").symlink_to("model.pt")
    os.mkfifo(place / "pipe")
    (place / os.fsdecode(b"broken\xff.txt")).write_text("x")
    return tmp_path


def test_only_files_are_opened_and_links_only_listed(outputs: Path) -> None:
    found = list_output_files(outputs, "u1")
    listed = {file.path: file.link for file in found.files}
    assert listed == {"broken\\xff.txt": "", "latest": "model.pt", "model.pt": "", "plots/loss.png": ""}
    with found.get("model.pt").open() as stream:
        assert stream.read() == b"weights"
    with found.get("broken\\xff.txt").open() as stream:
        assert stream.read() == b"x"


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "../outputs/model.pt", "/model.pt", "./model.pt", "plots", "plots/", "plots/../model.pt", "out",
     "up", "latest", "pipe", "model.pt/", "model.pt\0", "%2e%2e/secret", "\\model.pt", "~/model.pt", "x" * 5000],
)  # fmt: skip
def test_paths_that_are_not_listed_are_not_found(outputs: Path, path: str) -> None:
    with pytest.raises(Problem) as refused:
        list_output_files(outputs, "u1").get(path)
    assert refused.value.status == 404


def test_a_file_that_becomes_a_link_is_not_followed(outputs: Path) -> None:
    file = list_output_files(outputs, "u1").get("model.pt")
    place = outputs / "results" / "u1" / "outputs" / "model.pt"
    place.unlink()
    place.symlink_to(outputs / "secret")
    with pytest.raises(OSError):
        file.open()


def test_hashes_are_computed_within_the_budget_and_once() -> None:
    hashes = FileHashes()
    large = make_file(b"x" * 100, "large", mark="l")
    found = hashes.compute([make_file(b"abc", "a", mark="a"), large], budget=50)
    assert found == {"a": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    assert set(hashes.compute([large], budget=100)) == {"large"}
    assert set(hashes.compute([large], budget=0)) == {"large"}, "known"


def test_a_file_that_grows_has_no_hash() -> None:
    assert FileHashes().compute([make_file(b"abcdef", size=3), make_file(b"a", "b", size=3)]) == {}


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.txt", b"text \xed\x95\x9c", "text"),
        ("a.txt", b"", "text"),
        ("plot.png", PNG, "png"),
        ("not-named", b"\xff\xd8\xff\xe0jpeg", "jpeg"),
        ("a.svg.txt", b"<svg onload=alert(1)>", "text"),
    ],
)
def test_text_png_and_jpeg_are_shown(name: str, content: bytes, kind: str) -> None:
    found = read_preview(make_file(content, name))
    assert (found.kind, found.content, found.is_whole) == (kind, content, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.svg", b"<svg onload=alert(1)>"),
        ("A.HTML", b"<script>"),
        ("a.xhtml", PNG),
        ("model.pt", b"PK\0\0"),
        ("a.txt", b"\xff\xfe"),
        ("gif.png", b"GIF89a\0"),
        ("a.pdf", b"%PDF"),
    ],
)
def test_everything_else_is_only_downloaded(name: str, content: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_preview(make_file(content, name))
    assert (refused.value.status, refused.value.hint) == (415, "download it")


def test_a_long_text_is_cut_also_within_a_character() -> None:
    content = b"x" * (TEXT_BYTES - 1) + "한".encode() * 10
    found = read_preview(make_file(content))
    assert (len(found.content), found.is_whole) == (TEXT_BYTES, False)


def test_lists_offer_what_may_be_shown() -> None:
    names = {
        "a.py": "text",
        "LICENSE": "text",
        "a.PNG": "png",
        "a.jpg": "jpeg",
        "a.svg": None,
        "a.html": None,
        "a.pt": None,
    }
    assert {name: guess_preview(name, 10) for name in names} == names
    assert guess_preview("huge.png", 1 << 30) is None


def test_a_list_that_cannot_be_had_says_why() -> None:
    with pytest.raises(Problem) as refused:
        FileList(missing="not on a cluster").get("a")
    assert refused.value.hint == "not on a cluster"
