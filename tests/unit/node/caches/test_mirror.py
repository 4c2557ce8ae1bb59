"""The cache of the owner's jobs: links to the owner's files, in directories that jobs may write to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trainmaster.node.caches import mirror
from trainmaster.node.caches.mirror import CacheMirror, CacheView
from trainmaster.node.caches.sources import CacheSource

pytestmark = pytest.mark.unit

MODEL = "models--org--tiny"


class Owner:
    """An owner with a Hugging Face cache as `huggingface_hub` writes it, and the cache of the jobs."""

    def __init__(self, root: Path) -> None:
        self.hub = root / "owner" / "huggingface" / "hub"
        self.cache = root / "home" / "caches"
        self.seen = self.cache / "huggingface" / "hub"
        self.mirror = CacheMirror(self.cache, [CacheSource(str(self.hub), "huggingface/hub")])

    def put_model(self, commit: str, *files: str, name: str = MODEL, moment: int = 1_000) -> None:
        model = self.hub / name
        for file in files:
            blob, pointer = model / "blobs" / f"hash-of-{commit}-{file}", model / "snapshots" / commit / file
            for path in (blob, pointer):
                path.parent.mkdir(parents=True, exist_ok=True)
            blob.write_text(f"{file} of {commit}")
            pointer.symlink_to(f"../../blobs/{blob.name}")
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / "main").write_text(commit)
        os.utime(model / "refs" / "main", (moment, moment))

    def refresh(self) -> CacheView:
        return self.mirror.refresh()

    def read_snapshot(self) -> dict[str, str]:
        """What a library finds: the files of the revision that `main` names."""
        model = self.seen / MODEL
        folder = model / "snapshots" / (model / "refs" / "main").read_text()
        return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_a_model_is_found_and_its_files_are_not_copied(owner: Owner) -> None:
    owner.put_model("c1", "model.safetensors", "config.json")
    owner.refresh()
    assert owner.read_snapshot() == {"model.safetensors": "model.safetensors of c1", "config.json": "config.json of c1"}
    blob = owner.seen / MODEL / "blobs" / "hash-of-c1-config.json"
    assert blob.readlink() == owner.hub / MODEL / "blobs" / blob.name


def test_tokens_code_and_links_that_lead_out_are_left_out(owner: Owner, tmp_path: Path) -> None:
    owner.put_model("c1", "config.json", "modeling_tiny.py")
    owner.put_model("c1", "app.json", name="spaces--org--demo")
    (tmp_path / "secret").write_text("secret")
    for name in ("token", "stored_tokens"):
        (owner.hub / name).write_text("hf_secret")
    (owner.hub / "out").symlink_to(tmp_path / "secret")
    (owner.hub / MODEL / "snapshots" / "c1" / "up").symlink_to("../../../../../../secret")
    (owner.hub / MODEL / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(owner.hub / "pipe")
    owner.refresh()
    assert os.listdir(owner.seen) == [MODEL]
    assert sorted(os.listdir(owner.seen / MODEL)) == ["blobs", "refs", "snapshots"]
    assert list(owner.read_snapshot()) == ["config.json"]


def test_what_the_owner_adds_and_deletes_is_seen_by_the_next_job(owner: Owner) -> None:
    owner.refresh()
    owner.put_model("c1", "config.json")
    owner.refresh()
    owner.put_model("c2", "config.json", moment=2_000)
    owner.refresh()
    assert owner.read_snapshot() == {"config.json": "config.json of c2"}
    shutil.rmtree(owner.hub / MODEL / "snapshots" / "c1")
    (owner.hub / MODEL / "blobs" / "hash-of-c1-config.json").unlink()
    owner.refresh()
    assert os.listdir(owner.seen / MODEL / "snapshots") == ["c2"]
    shutil.rmtree(owner.hub)
    owner.refresh()
    assert not (owner.seen / MODEL / "snapshots").exists()


def test_a_cache_that_has_not_changed_is_not_read_again(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.put_model("c1", "config.json")
    owner.refresh()

    def fail(*args: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(mirror, "TreeWalk", fail)
    owner.refresh()


def test_a_cache_that_was_deleted_is_filled_again(owner: Owner) -> None:
    owner.put_model("c1", "config.json")
    owner.refresh()
    for folder in (owner.cache, owner.seen):
        shutil.rmtree(folder)
        owner.refresh()
        assert owner.read_snapshot() == {"config.json": "config.json of c1"}


def test_what_a_job_has_written_stays(owner: Owner) -> None:
    """It downloaded a newer revision, and a model that the owner downloads later."""
    owner.put_model("c1", "config.json")
    owner.refresh()
    model = owner.seen / MODEL
    (model / "snapshots" / "c9").mkdir()
    (model / "snapshots" / "c9" / "config.json").write_text("by a job")
    (model / "refs" / "main").write_text("c9")
    owner.put_model("c1", "other.json", moment=1_000)
    owner.refresh()
    assert owner.read_snapshot() == {"config.json": "by a job"}
    assert (owner.hub / MODEL / "refs" / "main").read_text() == "c1", "the owner's cache is not written to"
    (model / "blobs" / "hash-of-c2-config.json").write_text("by a job")
    owner.put_model("c2", "config.json", moment=1_000)
    owner.refresh()
    assert (model / "blobs" / "hash-of-c2-config.json").read_text() == "by a job"


def test_a_job_that_replaces_directories_by_links_redirects_nothing(owner: Owner, tmp_path: Path) -> None:
    """The server may run as root and must not be led to write or delete elsewhere."""
    target = tmp_path / "etc"
    target.mkdir()
    (target / "dangling").symlink_to("nowhere")
    owner.put_model("c1", "config.json")
    (owner.seen / MODEL).mkdir(parents=True)
    (owner.seen / MODEL / "blobs").symlink_to(target)
    (owner.seen / MODEL / "snapshots").symlink_to("../../../../../etc")
    (owner.seen / MODEL / "refs").write_text("a file")
    owner.refresh()
    assert os.listdir(target) == ["dangling"]


def test_a_cache_that_moved_is_linked_anew(owner: Owner, tmp_path: Path) -> None:
    owner.put_model("c1", "config.json")
    owner.refresh()
    moved = tmp_path / "big" / "hub"
    shutil.copytree(owner.hub, moved, symlinks=True)
    CacheMirror(owner.cache, [CacheSource(str(moved), "huggingface/hub")]).refresh()
    blob = owner.seen / MODEL / "blobs" / "hash-of-c1-config.json"
    assert blob.readlink() == moved / MODEL / "blobs" / blob.name
    # A link to the directory is what many use to move a cache.
    shutil.rmtree(owner.hub)
    owner.hub.symlink_to(moved)
    owner.refresh()
    assert owner.read_snapshot() == {"config.json": "config.json of c1"}


def test_directories_that_a_sandbox_hides_are_named(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.put_model("c1", "config.json")
    monkeypatch.setattr(mirror, "PRIVATE", ("/elsewhere",))
    assert owner.refresh() == CacheView(str(owner.cache))
    monkeypatch.setattr(mirror, "PRIVATE", (str(owner.hub.parents[2]),))
    again = CacheMirror(owner.cache, [CacheSource(str(owner.hub), "huggingface/hub")])
    assert again.refresh().shown == (str(owner.hub / MODEL / "blobs"),)


def test_a_huge_cache_is_shown_in_part(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    owner.put_model("c1", *(f"{number}.bin" for number in range(20)))
    monkeypatch.setattr(mirror, "MOST_ENTRIES", 10)
    owner.refresh()
    assert sum(len(files) for _, _, files in os.walk(owner.cache)) < 10
