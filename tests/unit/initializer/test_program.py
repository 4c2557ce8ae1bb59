"""The initializer: what it loads from where, and what it says when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainmaster.initializer.program import MODEL_PATTERNS, main, name_object, read_task, run

pytestmark = pytest.mark.unit


def make_source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "deep" / "b.bin").write_text("b")
    return source


def test_a_directory_of_the_machine_is_copied_whole(tmp_path: Path) -> None:
    source, target = make_source(tmp_path), tmp_path / "workspace" / "dataset"
    assert main(["dataset"], {"STORAGE_URI": f"file://{source}", "TARGET": str(target)}) == 1, "no volume is mounted"
    target.parent.mkdir()
    environ = {"STORAGE_URI": f"file://{source}", "TARGET": str(target), "IGNORE_PATTERNS": "deep/*.bin, *.md"}
    assert main(["dataset"], environ) == 0
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == ["a.txt", "deep"]
    (target / "a.txt").write_text("changed by the job")
    assert main(["dataset"], environ) == 0
    assert (target / "a.txt").read_text() == "changed by the job", "what is filled is left alone"


def test_a_single_file_goes_into_the_target(tmp_path: Path) -> None:
    source, target = make_source(tmp_path), tmp_path / "model"
    target.mkdir()
    assert main(["model"], {"STORAGE_URI": f"file://{source}/a.txt", "TARGET": str(target)}) == 0
    assert [path.name for path in target.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("kind", "uri", "want"),
    [
        pytest.param("dataset", "", "STORAGE_URI must be hf://, s3:// or file://", id="no URI"),
        pytest.param("dataset", "cache://x", "cache:// is not known here", id="another scheme"),
        pytest.param("dataset", "file://other/x", "names the machine 'other'", id="another machine"),
        pytest.param("dataset", "file:///no/such", "there is no such file or directory", id="nothing there"),
        pytest.param("x", "file:///", "there is no initializer for 'x'", id="another kind"),
        pytest.param("model", "hf://a/b", "needs the package huggingface_hub", id="a missing package"),
        pytest.param("model", "s3://a/b", "needs the package boto3", id="another missing package"),
    ],
)
def test_what_cannot_be_loaded_says_why_and_leaves_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    uri: str,
    want: str,
) -> None:
    for name in ("huggingface_hub", "boto3"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([kind], {"STORAGE_URI": uri, "TARGET": str(tmp_path / "t")}) == 1
    assert want in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_hugging_face_is_asked_as_upstream_does_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def snapshot_download(**options: Any) -> None:
        calls.append(options)
        Path(options["local_dir"], "weights.safetensors").write_text("w")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    common = {"ACCESS_TOKEN": "t", "CACHE_DIRECTORY": str(tmp_path / "cache")}
    for number in range(2):
        target = tmp_path / str(number)
        run(read_task("model", {**common, "STORAGE_URI": "hf://org/name", "TARGET": str(target)}))
        assert (target / "weights.safetensors").read_text() == "w"
    assert len(calls) == 1
    assert (calls[0]["repo_id"], calls[0]["repo_type"], calls[0]["token"]) == ("org/name", "model", "t")
    assert calls[0]["allow_patterns"] == list(MODEL_PATTERNS)
    run(read_task("dataset", {**common, "STORAGE_URI": "hf://org/name/part", "TARGET": str(tmp_path / "d")}))
    assert (calls[1]["repo_id"], calls[1]["allow_patterns"]) == ("org/name", None)


def test_objects_of_a_bucket_are_loaded_below_the_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["data/", "data/a", "data/deep/b", "data/skip.md"]
    made: list[dict[str, Any]] = []

    def download(bucket: str, key: str, path: str) -> None:
        Path(path).write_text(f"{bucket}:{key}")

    pages = SimpleNamespace(paginate=lambda **options: [{"Contents": [{"Key": key} for key in keys]}])
    client = SimpleNamespace(get_paginator=lambda name: pages, download_file=download)

    def connect(name: str, **options: Any) -> Any:
        made.append(options)
        return client

    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=connect))
    environ = {"STORAGE_URI": "s3://bucket/data", "IGNORE_PATTERNS": "*.md", "ENDPOINT": "http://e", "REGION": "r"}
    run(read_task("dataset", {**environ, "TARGET": str(tmp_path / "t")}))
    assert (tmp_path / "t" / "deep" / "b").read_text() == "bucket:data/deep/b"
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["a", "deep"]
    assert made == [{"endpoint_url": "http://e", "region_name": "r"}]


@pytest.mark.parametrize(
    ("key", "want"),
    [("data/x", "x"), ("data/", None), ("data/../x", None), ("data", "data")],
)
def test_names_of_objects_stay_below_the_target(key: str, want: str | None) -> None:
    assert name_object(key, "data") == want


def test_a_load_that_fails_leaves_no_half_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(**options: Any) -> None:
        Path(options["local_dir"], "half").write_text("x")
        raise OSError("connection lost")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=break_off))
    with pytest.raises(OSError, match="connection lost"):
        run(read_task("model", {"STORAGE_URI": "hf://a/b", "TARGET": str(tmp_path / "t")}))
    assert list(tmp_path.iterdir()) == []
