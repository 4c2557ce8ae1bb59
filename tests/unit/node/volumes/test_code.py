"""Volumes of code: who gets a layer and who a copy, where a container starts, and what is kept of rank 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.unit.node.making import make_pod, make_prepared
from trainmaster.api import code as words
from trainmaster.api.meta import Object
from trainmaster.bundles.store import BundleStore
from trainmaster.bundles.views import CopyOwner
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.fields import list_refused
from trainmaster.node.launch.containers import build_container
from trainmaster.node.volumes import code
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.shim.protocol import BIND, FULL, OVERLAY, PLAIN, USER, ContainerSpec, Mount, decode, encode

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
