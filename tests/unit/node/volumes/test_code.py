"""Volumes of code: who gets a layer and who a copy, where a container starts, and what is kept of rank 0."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.deep import deep_tree
from tests.unit.node.making import make_pod, make_prepared
from trainmaster.api import code as words
from trainmaster.api.labels import COMPLETION_INDEX, JOBSET_UID, REPLICATED_JOB_NAME
from trainmaster.api.meta import Object
from trainmaster.bundles import BundleStore, pack
from trainmaster.bundles.views import CopyOwner
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.disk import outputs
from trainmaster.node.disk.outputs import Outputs
from trainmaster.node.fields import list_refused
from trainmaster.node.launch.containers import build_container
from trainmaster.node.volumes import code
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.shim.protocol import BIND, FULL, OVERLAY, PLAIN, USER, ContainerSpec, Mount, decode, encode
from trainmaster.shim.trees import TreeEntry

pytestmark = pytest.mark.unit

DIGEST = "sha256:" + "a" * 64
MOUNT: Object = {"name": "code", "mountPath": "/workspace/code"}


def ask(*containers: Object, level: str = FULL, foreign: bool = False, **csi: Any) -> code.CodeVolume:
    volume = words.build_volume(DIGEST)
    volume["csi"].update(csi)
    pod = make_pod(*containers, volumes=[{"name": "other", "emptyDir": {}}, volume])
    (found,) = code.list_asked(Pod(pod), level, foreign=foreign)
    return found


@pytest.mark.parametrize("level", (FULL, USER))
def test_in_a_sandbox_one_container_gets_a_layer(level: str) -> None:
    assert ask({"volumeMounts": [MOUNT]}, level=level) == code.CodeVolume("code", DIGEST, False, copied=False)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(lambda: ask({"volumeMounts": [MOUNT]}, level=PLAIN), id="the plain level has no mounts"),
        pytest.param(
            lambda: ask({"volumeMounts": [MOUNT]}, {"name": "b", "volumeMounts": [MOUNT]}), id="two containers share it"
        ),
        pytest.param(lambda: ask({"volumeMounts": [{**MOUNT, "subPath": "x"}]}), id="a subPath may have to be made"),
        pytest.param(lambda: ask({"volumeMounts": [MOUNT]}, foreign=True), id="another user could not write"),
    ],
)
def test_otherwise_the_pod_gets_a_copy(asked: Any) -> None:
    assert asked().copied


def test_what_is_read_only_in_a_sandbox_is_the_bundle_itself(tmp_path: Path) -> None:
    asked = ask({"volumeMounts": [MOUNT]}, {"name": "b", "volumeMounts": [MOUNT]}, readOnly=True)
    assert (asked.read_only, asked.copied) == (True, False)


def test_volumes_that_are_no_code_are_none_of_ours() -> None:
    assert code.list_asked(Pod(make_pod({}, volumes=[{"name": "x", "emptyDir": {}}])), PLAIN, foreign=False) == []
    assert words.find_digest({"name": "x", "csi": {"driver": "other"}}) is None
    assert words.find_digest({"name": "x", "csi": {"driver": words.DRIVER}}) == ""


def test_a_wrong_digest_and_an_unknown_one_say_what_to_do(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "bundles")
    for digest, want in (("sha256:12", "must be sha256: and 64"), (DIGEST, f"no code {DIGEST}: bring it with")):
        with pytest.raises(VolumeError, match=r'^MountVolume.SetUp failed for volume "code" : ') as caught:
            code.make(code.CodeVolume("code", digest, False, True), store, str(tmp_path / "pod"), CopyOwner())
        assert want in str(caught.value)
        assert "trainmaster code pack" in str(caught.value)


def test_a_pod_that_has_its_copy_needs_the_bundle_no_more(tmp_path: Path) -> None:
    (tmp_path / "pod/volumes/code").mkdir(parents=True)
    asked = code.CodeVolume("code", DIGEST, False, True)
    made = code.make(asked, BundleStore(tmp_path / "bundles"), str(tmp_path / "pod"), CopyOwner())
    assert made.source == str(tmp_path / "pod/volumes/code")


def build(tmp_path: Path, level: str, volume: Volume, container: Object) -> ContainerSpec:
    prepared = make_prepared(tmp_path, level=level, volumes={"code": volume})
    return build_container(Pod(make_pod(container)), "node", 0, prepared)[0]


def test_a_container_without_a_working_directory_starts_in_its_code(tmp_path: Path) -> None:
    container = {"volumeMounts": [MOUNT], "command": ["/bin/sh", "/workspace/code/x"]}
    layered = Volume("code", "/bundles/tree", layer="/pod/layer", code=DIGEST)
    spec = build(tmp_path, FULL, layered, container)
    assert spec.directory == "/workspace/code"
    mount = next(entry for entry in spec.mounts if entry.target == "/workspace/code")
    assert (mount.kind, mount.source, mount.layer) == (OVERLAY, "/bundles/tree", "/pod/layer")
    assert build(tmp_path, FULL, layered, {**container, "workingDir": "/usr"}).directory == "/usr"
    spec = build(tmp_path, PLAIN, Volume("code", str(tmp_path), code=DIGEST), container)
    assert (spec.directory, spec.argv[1]) == (str(tmp_path), f"{tmp_path}/x")


def test_a_read_only_mount_needs_no_layer(tmp_path: Path) -> None:
    layered = Volume("code", "/bundles/tree", layer="/pod/layer", code=DIGEST)
    spec = build(tmp_path, FULL, layered, {"volumeMounts": [{**MOUNT, "readOnly": True}]})
    mount = next(entry for entry in spec.mounts if entry.target == "/workspace/code")
    assert (mount.kind, mount.read_only) == (BIND, True)


def test_shims_of_before_can_read_mounts_without_a_layer() -> None:
    spec = ContainerSpec("c", 0, ("sh",), {}, "/", mounts=(Mount("/a", "/b"), Mount("/c", "/d", OVERLAY, layer="/l")))
    raw = orjson.loads(encode(spec))
    assert [sorted(entry) for entry in raw["mounts"]] == [
        ["kind", "read_only", "size", "source", "target"],
        ["kind", "layer", "read_only", "size", "source", "target"],
    ]
    assert decode(ContainerSpec, encode(spec)) == spec


def test_other_drivers_are_refused_by_name() -> None:
    volumes = [words.build_volume(DIGEST), {"name": "x", "csi": {"driver": "disk.example.com"}}]
    (text,) = list_refused(Pod(make_pod(volumes=volumes)))
    assert text.startswith("spec.volumes[1].csi of driver disk.example.com")
    secret = {"name": "x", "csi": {"driver": words.DRIVER, "nodePublishSecretRef": {"name": "s"}}}
    assert list_refused(Pod(make_pod(volumes=[secret]))) == ["spec.volumes[0].csi.nodePublishSecretRef"]


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
        self.view = Path(self.volume.source)

    def note(self, index: str = "0", trainjob: str = "job-uid") -> None:
        labels = {JOBSET_UID: "js", REPLICATED_JOB_NAME: "node", COMPLETION_INDEX: index}
        pod = make_pod({}, labels=labels)
        self.outputs.note(Pod(pod), trainjob, {"code": self.volume}, str(self.directory))

    @property
    def kept(self) -> Path:
        return self.results / "job-uid" / "workdirs" / "pod-uid"

    def list_kept(self) -> list[str]:
        return sorted(str(path.relative_to(self.kept)) for path in self.kept.rglob("*") if not path.is_dir())


def test_what_rank_0_wrote_is_kept_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (stage.view / "loss.csv").write_text("1\n")
    assert stage.outputs.keep(stage.directory) == 1
    assert stage.outputs.keep(stage.directory) == 0
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
    assert stage.outputs.keep(stage.directory) == 0


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
        stage.outputs.keep(stage.directory)
    assert not stage.kept.exists()
    (stage.view / "a").unlink()
    assert stage.outputs.keep(stage.directory) == 2
    assert stage.list_kept() == ["about.json", "files/b", "files/c"]
    assert os.listdir(stage.kept.parent) == ["pod-uid"]


def test_results_that_were_removed_stay_removed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (stage.view / "loss.csv").write_text("1\n")
    (stage.results / "job-uid").rmdir()
    assert stage.outputs.keep(stage.directory) == 0
    assert not (stage.results / "job-uid").exists()


def test_across_file_systems_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.note()
    (stage.view / "loss.csv").write_text("1\n")

    def refuse(*args: object, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert stage.outputs.keep(stage.directory) == 1
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
        assert stage.outputs.keep(stage.directory) > 0
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
    assert stage.outputs.keep(stage.directory) == 4
    assert len(stage.list_kept()) == 5
