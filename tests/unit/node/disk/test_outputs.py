"""What a Pod leaves when it ends: what is kept of rank 0, and what is recorded as lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import orjson
import pytest

from tests.support.deep import deep_tree
from tests.unit.node.making import make_pod
from trainmaster.api.labels import COMPLETION_INDEX, JOBSET_UID, REPLICATED_JOB_NAME
from trainmaster.bundles.packing import pack
from trainmaster.bundles.store import BundleStore
from trainmaster.bundles.views import CopyOwner
from trainmaster.history.lost_files import describe_lost, list_lost
from trainmaster.history.results import list_outputs
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.disk import outputs
from trainmaster.node.disk.outputs import Outputs
from trainmaster.node.volumes import code
from trainmaster.shim.trees import TreeEntry

pytestmark = pytest.mark.unit


class Stage:
    """A Pod of rank 0 that has run on a copy of its code."""

    def __init__(self, root: Path) -> None:
        source = root / "source"
        source.mkdir()
        (source / "train.py").write_text("train\n")
        self.digest = pack(source, root / "bundles").digest
        self.results, self.directory = root / "results", root / "pods" / "pod-uid"
        self.outputs = Outputs(self.results, root / "bundles")
        (self.results / "job-uid").mkdir(parents=True)
        asked = code.CodeVolume("code", self.digest, False, True)
        self.volume = code.make(asked, BundleStore(root / "bundles"), str(self.directory), CopyOwner())
        self.volumes = {"code": self.volume}
        self.view = Path(self.volume.source)

    def note(self, index: str = "0", trainjob: str = "job-uid") -> None:
        labels = {JOBSET_UID: "js", REPLICATED_JOB_NAME: "node", COMPLETION_INDEX: index}
        pod = make_pod({}, labels=labels)
        self.outputs.note(Pod(pod), trainjob, self.volumes, str(self.directory))

    @property
    def home(self) -> Path:
        home = self.directory / "work"
        home.mkdir(exist_ok=True)
        return home

    def keep(self) -> int:
        finished = self.outputs.find_finished(self.directory)
        return 0 if finished is None else self.outputs.keep(finished)

    def record_lost(self) -> list[str]:
        finished = self.outputs.find_finished(self.directory)
        lost = None if finished is None else self.outputs.record_lost(finished)
        return [] if lost is None else [file.path for file in lost.files]

    def put_scratch(self, name: str, size: int) -> None:
        path = self.directory / "scratch" / "main.0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)

    @property
    def kept(self) -> Path:
        return self.results / "job-uid" / "workdirs" / "pod-uid"

    def list_kept(self) -> list[str]:
        return sorted(str(path.relative_to(self.kept)) for path in self.kept.rglob("*") if not path.is_dir())


def test_what_rank_0_wrote_is_kept_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (stage.view / "loss.csv").write_text("1\n")
    assert stage.keep() == 1
    assert stage.keep() == 0
    assert stage.list_kept() == ["about.json", "files/loss.csv"]
    assert (stage.kept / "files/loss.csv").samefile(stage.view / "loss.csv")
    assert orjson.loads((stage.kept / "about.json").read_bytes())["attempt"] == 0


@pytest.mark.parametrize(
    ("index", "trainjob"), [pytest.param("1", "job-uid", id="another rank"), pytest.param("0", "", id="no TrainJob")]
)
def test_nothing_is_kept_of_others(tmp_path: Path, index: str, trainjob: str) -> None:
    stage = Stage(tmp_path)
    stage.note(index, trainjob)
    (stage.view / "loss.csv").write_text("1\n")
    assert stage.keep() == 0


def test_a_crash_in_the_middle_keeps_nothing_half_and_the_next_try_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.note()
    for name in ("a", "b", "c"):
        (stage.view / name).write_text(name)
    keep_file, calls = outputs._keep_file, iter(range(10))

    def crash(entry: TreeEntry, target: Path) -> None:
        if next(calls) == 1:
            raise OSError(28, "No space left on device")
        keep_file(entry, target)

    monkeypatch.setattr(outputs, "_keep_file", crash)
    with pytest.raises(OSError, match="No space left"):
        stage.keep()
    assert not stage.kept.exists()
    (stage.view / "a").unlink()
    assert stage.keep() == 2
    assert stage.list_kept() == ["about.json", "files/b", "files/c"]
    assert os.listdir(stage.kept.parent) == ["pod-uid"]


def test_results_that_were_removed_stay_removed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (stage.view / "loss.csv").write_text("1\n")
    (stage.results / "job-uid").rmdir()
    assert stage.keep() == 0
    assert not (stage.results / "job-uid").exists()


def test_across_file_systems_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (stage.view / "loss.csv").write_text("1\n")

    def refuse(*args: object, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert stage.keep() == 1
    assert (stage.kept / "files/loss.csv").read_text() == "1\n"


@pytest.mark.parametrize("linked", [True, False])
def test_a_working_directory_that_is_a_trap_is_kept_as_far_as_it_is_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "shadow").write_text("secret")
    os.symlink(tmp_path / "secret", stage.view / "absolute")
    os.symlink("../../../secret", stage.view / "up")
    os.symlink(".", stage.view / "here")
    os.symlink("here/here/here/here/../../../../../../secret", stage.view / "dots")
    os.mkfifo(stage.view / "pipe")
    odd = os.fsdecode(b"a\nb\xff\x1b[31m")
    (stage.view / odd).write_text("odd")
    with (stage.view / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 40)
        file.write(b"end")
    if not linked:

        def refuse(*args: object, **options: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
    files = stage.kept / "files"
    with deep_tree(stage.view, 3 * sys.getrecursionlimit(), files):
        assert stage.keep() > 0
        check_kept(files, odd)


def check_kept(files: Path, odd: str) -> None:
    shallow = [name for name in os.listdir(files) if name != "d"]
    assert sorted(shallow) == sorted(["here", odd, "sparse"])
    assert not any("shadow" in names for _, _, names in os.walk(files))
    status = (files / "sparse").stat()
    assert (status.st_size, status.st_blocks < 1000) == ((1 << 40) + 3, True)


def test_no_more_files_are_kept_than_anybody_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.note()
    for number in range(10):
        (stage.view / str(number)).write_text("")
    monkeypatch.setattr(outputs, "MOST_FILES", 4)
    assert stage.keep() == 4
    assert len(stage.list_kept()) == 5


def test_what_rank_0_wrote_to_its_home_is_kept_without_caches_settings_and_downloads(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    for name in (
        "model.pt",
        "runs/1/events",
        "runs/__pycache__/a.pyc",
        ".cache/x",
        ".netrc",
        "nltk_data/words",
        "data/.x",
    ):
        (stage.home / name).parent.mkdir(parents=True, exist_ok=True)
        (stage.home / name).write_text(name)
    os.symlink("/etc/passwd", stage.home / "out")
    os.symlink("model.pt", stage.home / "best.pt")
    assert stage.keep() == 4
    assert stage.list_kept() == ["about.json", "home/best.pt", "home/data/.x", "home/model.pt", "home/runs/1/events"]


def test_the_home_counts_toward_the_same_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.note()
    for number in range(3):
        (stage.view / str(number)).write_text("")
        (stage.home / str(number)).write_text("")
    monkeypatch.setattr(outputs, "MOST_FILES", 4)
    assert stage.keep() == 4


def test_a_pod_without_code_has_a_home_too_and_one_that_wrote_nothing_is_not_looked_at(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.volumes = {}
    stage.note()
    assert stage.outputs.find_finished(stage.directory) is None
    (stage.home / "model.pt").write_text("1")
    assert stage.keep() == 1
    assert stage.list_kept() == ["about.json", "home/model.pt"]


def test_a_note_of_an_earlier_version_is_that_of_rank_0(tmp_path: Path) -> None:
    """A Pod that was started before an upgrade."""
    stage = Stage(tmp_path)
    note = {"trainjob": "job-uid", "digest": stage.digest, "view": str(stage.view), "layered": False}
    about = {"job": "node", "attempt": 0, "pod": "p"}
    (stage.directory / outputs.NOTE).write_bytes(orjson.dumps({**note, "about": about}))
    (stage.view / "loss.csv").write_text("1")
    assert stage.keep() == 1


def test_a_note_that_a_power_cut_left_empty_stops_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (stage.directory / outputs.NOTE).write_bytes(b"")
    (stage.view / "loss.csv").write_text("1")
    assert stage.outputs.find_finished(stage.directory) is None


def test_what_is_lost_is_what_somebody_would_miss(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    stage.put_scratch("tmp1/model.pt", 10)
    stage.put_scratch("tmp1/run/weights", 100_000)
    stage.put_scratch("tmp2/big", 70_000)
    small_or_temporary = ("tmp1/notes", "tmp1/tmpab12cd34/model.pt", "tmp1/torchinductor_me/a.json", "tmp1/.x/a.pt")
    for name in (*small_or_temporary, "tmp1/a.lock", "tmp1/__pycache__/b.json"):
        stage.put_scratch(name, 10)
    (stage.home / "kept.pt").write_text("1")
    assert stage.keep() == 1
    assert stage.record_lost() == ["/tmp/run/weights", "/var/tmp/big", "/tmp/model.pt"]
    assert stage.outputs.find_finished(stage.directory) is None, "all is done"


def test_other_ranks_lose_what_they_wrote_unless_rank_0_wrote_it_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    archive = tmp_path
    stage.note("1")
    for place in (stage.view, stage.home):
        (place / "loss.csv").write_text("1")
        (place / "shard.pt").write_text("1")
    assert stage.keep() == 0
    assert sorted(stage.record_lost()) == ["loss.csv", "shard.pt", "~/loss.csv", "~/shard.pt"]
    for path in ("files/loss.csv", "home/loss.csv", "about.json"):
        target = stage.results / "job-uid" / "workdirs" / "first" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("{}")
    (lost,) = list_lost(archive, "job-uid", list_outputs(archive, "job-uid"))
    assert ([file.path for file in lost.files], lost.count) == (["~/shard.pt", "shard.pt"], 2)
    assert describe_lost([lost]) == (
        "not kept: ~/shard.pt of rank 1 (1 B), shard.pt of rank 1 (1 B); "
        "write to $TRAINMASTER_OUTPUT_DIR what you want to keep"
    )


def test_names_of_lost_files_cannot_control_a_terminal(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    stage.put_scratch("tmp1/" + os.fsdecode(b"\x1b[31m\nred\xff.pt"), 10)
    (path,) = stage.record_lost()
    assert path.isprintable()
    assert "red" in path


def test_many_lost_files_are_counted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    for number in range(30):
        stage.put_scratch(f"tmp1/{number:02d}.pt", number + 1)
    assert len(stage.record_lost()) == 20
    text = describe_lost(list_lost(tmp_path, "job-uid", []))
    assert text.startswith("not kept: /tmp/29.pt (30 B), /tmp/28.pt (29 B), /tmp/27.pt (28 B) and 27 more files;")
