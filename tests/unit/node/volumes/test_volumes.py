"""Volumes, kind by kind: which files they show, with which modes, and what is said when one cannot be made."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.making import make_pod
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.volumes import PersistentVolume
from trainmaster.node.launch.contract import Site
from trainmaster.node.launch.launcher import PodReader
from trainmaster.node.volumes import claim, empty_dir, host_path
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.node.volumes.creation import Supplies, list_needs, make_all
from trainmaster.node.volumes.writer import File, write_files

pytestmark = pytest.mark.unit

SETTINGS: Object = {"data": {"a": "1", "b": "2"}, "binaryData": {"raw": base64.b64encode(b"\x00\xff").decode()}}
KEYS: Object = {"data": {"token": base64.b64encode(b"s3cret").decode(), "user": base64.b64encode(b"me").decode()}}


def make(tmp_path: Path, volume: Object, **supplies: Any) -> Volume:
    pod = make_pod({"resources": {"limits": {"memory": "1Gi"}}}, labels={"b": 'say "x"', "a": "1"})
    given = Supplies(str(tmp_path), tmp_path / "claims", {"settings": SETTINGS}, {"keys": KEYS}, **supplies)
    reader = PodReader(Pod(pod), Site(str(tmp_path)), {"cpu": 4})
    return make_all(Pod(pod), [{"name": "v", **volume}], given, reader)["v"]


def show(volume: Volume) -> dict[str, tuple[str, int]]:
    """What a program sees: path to content and mode."""
    root = Path(volume.source)
    found = {}
    for name in sorted(os.listdir(root)):
        if name.startswith(".."):
            continue
        paths = [root / name] if (root / name).is_file() else sorted((root / name).rglob("*"))
        for path in paths:
            if path.is_file():
                text = path.read_bytes().decode("latin-1")
                found[str(path.relative_to(root))] = (text, path.stat().st_mode & 0o777)
    return found


def test_a_config_map_shows_each_key_as_a_file(tmp_path: Path) -> None:
    volume = make(tmp_path, {"configMap": {"name": "settings"}})
    assert show(volume) == {"a": ("1", 0o644), "b": ("2", 0o644), "raw": ("\x00\xff", 0o644)}
    assert (volume.read_only, volume.live) == (True, True)


def test_items_choose_keys_paths_and_modes(tmp_path: Path) -> None:
    items = [{"key": "a", "path": "deep/er/a.txt"}, {"key": "b", "path": "b", "mode": 0o400}]
    volume = make(tmp_path, {"configMap": {"name": "settings", "defaultMode": 0o640, "items": items}})
    assert show(volume) == {"deep/er/a.txt": ("1", 0o640), "b": ("2", 0o400)}


def test_a_secret_is_decoded_and_private_where_one_user_runs_all(tmp_path: Path) -> None:
    source = {"secret": {"secretName": "keys", "items": [{"key": "token", "path": "t", "mode": 0o644}]}}
    assert show(make(tmp_path / "a", source)) == {"t": ("s3cret", 0o644)}
    assert show(make(tmp_path / "b", source, private=True)) == {"t": ("s3cret", 0o600)}
    assert (tmp_path / "b" / "volumes").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("volume", "want"),
    [
        pytest.param({"configMap": {"name": "x"}}, 'configmap "x" not found', id="no ConfigMap"),
        pytest.param({"secret": {"secretName": "x"}}, 'secret "x" not found', id="no Secret"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "k", "path": "k"}]}},
            "configmap references non-existent config key: k",
            id="no key in the ConfigMap",
        ),
        pytest.param(
            {"secret": {"secretName": "keys", "items": [{"key": "k", "path": "k"}]}},
            "references non-existent secret key: k",
            id="no key in the Secret",
        ),
        pytest.param(
            {"projected": {"sources": [{"secret": {"name": "x"}}]}}, 'secret "x" not found', id="no projected Secret"
        ),
        pytest.param(
            {"nfs": {"server": "s", "path": "/"}}, "volumes of kind nfs are not carried out", id="other kinds"
        ),
        pytest.param(
            {"hostPath": {"path": "/no/such", "type": "Directory"}},
            "hostPath type check failed: /no/such is not a directory",
            id="no such path",
        ),
    ],
)
def test_what_is_missing_is_said_in_the_kubelets_words(tmp_path: Path, volume: Object, want: str) -> None:
    with pytest.raises(VolumeError) as caught:
        make(tmp_path, volume)
    assert str(caught.value) == f'MountVolume.SetUp failed for volume "v" : {want}' or want in str(caught.value)
    assert str(caught.value).startswith('MountVolume.SetUp failed for volume "v" : ')


def test_optional_sources_that_are_missing_show_nothing(tmp_path: Path) -> None:
    assert show(make(tmp_path / "a", {"configMap": {"name": "x", "optional": True}})) == {}
    assert show(make(tmp_path / "b", {"secret": {"secretName": "x", "optional": True}})) == {}
    items = [{"key": "a", "path": "a"}, {"key": "k", "path": "k"}]
    volume = make(tmp_path / "c", {"configMap": {"name": "settings", "optional": True, "items": items}})
    assert show(volume) == {"a": ("1", 0o644)}


def test_the_downward_api_shows_fields_and_resources(tmp_path: Path) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400},
        {
            "path": "memory",
            "resourceFieldRef": {"containerName": "node", "resource": "limits.memory", "divisor": "1Mi"},
        },
    ]
    volume = make(tmp_path, {"downwardAPI": {"items": items}})
    assert show(volume) == {
        "labels": ('a="1"\nb="say \\"x\\""', 0o644),
        "memory": ("1024", 0o644),
        "name": ("job-node-0-1-abcde", 0o400),
    }


def test_a_projected_volume_puts_sources_together(tmp_path: Path) -> None:
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
        {"secret": {"name": "keys", "items": [{"key": "user", "path": "deep/user"}]}},
        {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"serviceAccountToken": {"path": "token", "audience": "me", "expirationSeconds": 600}},
    ]
    volume = make(tmp_path, {"projected": {"sources": sources, "defaultMode": 0o444}}, tokens={("me", 600): "jwt"})
    assert show(volume) == {
        "a": ("1", 0o444),
        "deep/user": ("me", 0o444),
        "ns": ("ns", 0o444),
        "token": ("jwt", 0o600),
    }


def test_content_changes_all_at_once_by_one_link(tmp_path: Path) -> None:
    directory = tmp_path / "v"
    assert write_files(str(directory), {"a": File(b"1"), "b/c": File(b"2")}, "one")
    inside = os.readlink(directory / "..data")
    assert os.readlink(directory / "a") == "..data/a"
    assert not write_files(str(directory), {"a": File(b"1"), "b/c": File(b"2")}, "one"), "nothing changed"
    assert write_files(str(directory), {"a": File(b"3"), "d": File(b"4")}, "two")
    assert (directory / "a").read_bytes() == b"3"
    assert sorted(name for name in os.listdir(directory) if not name.startswith("..")) == ["a", "d"]
    assert not (directory / inside).exists()


def test_a_crash_while_writing_leaves_the_old_content_and_is_cleaned_up(tmp_path: Path) -> None:
    directory = tmp_path / "v"
    write_files(str(directory), {"a": File(b"1")}, "one")
    (directory / "..two").mkdir()
    (directory / "..two" / "a").write_bytes(b"half")
    assert (directory / "a").read_bytes() == b"1"
    assert write_files(str(directory), {"a": File(b"2")}, "two")
    assert (directory / "a").read_bytes() == b"2"


def test_an_empty_dir_keeps_its_content_when_made_again(tmp_path: Path) -> None:
    volume = make(tmp_path, {"emptyDir": {"sizeLimit": "1Mi"}})
    (Path(volume.source) / "x").write_text("kept")
    assert make(tmp_path, {"emptyDir": {"sizeLimit": "1Mi"}}) == volume
    assert (Path(volume.source) / "x").read_text() == "kept"
    assert (volume.size_limit, volume.scratch, volume.read_only) == (1 << 20, True, False)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a/.."])
def test_a_file_that_would_lie_outside_of_its_volume_is_not_written(tmp_path: Path, path: str) -> None:
    """The API refuses it; a Pod that was let in by an earlier version may have it."""
    with pytest.raises(VolumeError, match="outside of its volume"):
        write_files(str(tmp_path / "pod" / "v"), {path: File(b"1")}, "one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trap", ["directory", "link"])
def test_memory_of_another_user_is_not_used(tmp_path: Path, trap: str) -> None:
    """Everybody may make directories on the memory file system, also under our name."""
    memory, theirs = tmp_path / "shm", tmp_path / "theirs"
    memory.mkdir()
    (theirs / "u").mkdir(parents=True)
    (theirs / "u" / "kept").touch()
    place = memory / f"trainmaster-{os.getuid()}"
    if trap == "link":
        place.symlink_to(theirs)
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can give a directory away")
        place.mkdir()
        os.chown(place, 61234, 61234)
    with pytest.raises(VolumeError, match="belongs to another user"):
        empty_dir.make("v", {"medium": "Memory"}, str(tmp_path / "pod"), "u", memory)
    empty_dir.remove_memory("u", memory)
    assert (theirs / "u" / "kept").exists()


def test_medium_memory_lies_on_the_memory_file_system(tmp_path: Path) -> None:
    memory = tmp_path / "shm"
    memory.mkdir()
    volume = empty_dir.make("v", {"medium": "Memory", "sizeLimit": "2Mi"}, str(tmp_path / "pod"), "u", memory)
    assert volume.source.startswith(f"{memory}/")
    assert (volume.memory, volume.size_limit) == (True, 2 << 20)
    empty_dir.remove_memory("u", memory)
    assert list(memory.iterdir()) == []
    on_disk = empty_dir.make("v", {"medium": "Memory"}, str(tmp_path / "pod"), "u", tmp_path / "none")
    assert on_disk.source == str(tmp_path / "pod" / "volumes" / "v")
    assert "is on disk" in on_disk.note


@pytest.mark.parametrize(
    ("kind", "name", "fits"),
    [
        pytest.param("", "directory", True, id="no type checks nothing"),
        pytest.param("", "new", True, id="no type makes a directory"),
        pytest.param("Directory", "directory", True, id="a directory"),
        pytest.param("Directory", "file", False, id="a file is no directory"),
        pytest.param("DirectoryOrCreate", "new", True, id="a directory is made"),
        pytest.param("File", "file", True, id="a file"),
        pytest.param("File", "directory", False, id="a directory is no file"),
        pytest.param("FileOrCreate", "new", True, id="a file is made"),
        pytest.param("Socket", "socket", True, id="a socket"),
        pytest.param("Socket", "file", False, id="a file is no socket"),
        pytest.param("CharDevice", "/dev/null", True, id="a device"),
        pytest.param("BlockDevice", "/dev/null", False, id="the other kind of device"),
    ],
)
def test_host_paths_are_checked_against_their_type(tmp_path: Path, kind: str, name: str, fits: bool) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    path = str(tmp_path / name)
    if not fits:
        with pytest.raises(VolumeError, match=f"hostPath type check failed: {path} is not a"):
            host_path.make("v", {"path": path, "type": kind}, allowed=True)
        return
    assert host_path.make("v", {"path": path, "type": kind}, allowed=True).source == path
    assert os.path.exists(path)


def test_an_installation_can_forbid_host_paths(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="not allowed by this installation"):
        make(tmp_path, {"hostPath": {"path": "/"}}, host_paths=False)


def test_a_claim_of_our_class_is_a_directory_by_its_handle(tmp_path: Path) -> None:
    found = {
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": "local-directory.trainmaster.dev", "volumeHandle": "h"}},
    }
    source = {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    volume = make(tmp_path, source, volumes={"c": PersistentVolume(found)})
    assert (volume.source, volume.read_only, volume.scratch) == (str(tmp_path / "claims" / "h"), True, False)
    assert (tmp_path / "claims" / "h").is_dir()


@pytest.mark.parametrize("handle", ["", "..", "a/b", "/etc"])
def test_a_handle_is_a_name_and_no_path(tmp_path: Path, handle: str) -> None:
    with pytest.raises(VolumeError, match="is not a name"):
        claim.get_directory(tmp_path, handle)


def test_a_claim_may_be_bound_to_a_path_of_the_machine(tmp_path: Path) -> None:
    found = {"metadata": {"name": "pv"}, "spec": {"hostPath": {"path": str(tmp_path / "here")}}}
    source = {"persistentVolumeClaim": {"claimName": "c"}}
    assert make(tmp_path, source, volumes={"c": PersistentVolume(found)}).source.endswith("/here")
    other = {"metadata": {"name": "pv"}, "spec": {"nfs": {}}}
    with pytest.raises(VolumeError, match='persistentvolume "pv" cannot be mounted'):
        make(tmp_path, source, volumes={"c": PersistentVolume(other)})


def test_ephemeral_volumes_are_directories_of_the_pod_and_say_so(tmp_path: Path) -> None:
    volume = make(tmp_path, {"ephemeral": {"volumeClaimTemplate": {}}})
    assert volume.scratch
    assert "its claim template is not created" in volume.note


def test_needs_are_listed_from_all_kinds() -> None:
    volumes = [
        {"name": "a", "configMap": {"name": "m"}},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
        {
            "name": "d",
            "projected": {
                "sources": [
                    {"configMap": {"name": "m2"}},
                    {"secret": {"name": "s2"}},
                    {"serviceAccountToken": {"path": "t"}},
                ]
            },
        },
    ]
    needs = list_needs(volumes)
    assert set(needs.config_maps) == {"m", "m2"}
    assert (set(needs.secrets), set(needs.claims)) == ({"s", "s2"}, {"c"})
    assert [token["path"] for token in needs.tokens] == ["t"]
