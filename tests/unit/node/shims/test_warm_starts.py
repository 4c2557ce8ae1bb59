"""Which zygote a Pod gets, and which one is prepared when it has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from trainmaster.api.labels import WARM
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Environment
from trainmaster.node.images.layer_hook import IMPORTS
from trainmaster.node.shims.learned import FILE, WarmUse
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.node.shims.warm import Mode, WarmSettings, WarmZygote
from trainmaster.node.shims.warm_starts import WarmStarts
from trainmaster.shim.protocol import FULL, PLAIN, ContainerSpec

pytestmark = pytest.mark.unit


class Zygotes:
    """The part of a supervisor that starts zygotes; a prepared one is ready when the test says so."""

    def __init__(self) -> None:
        self.zygotes = self
        self.prepared: list[WarmZygote] = []
        self.ready: set[str] = set()
        self.failed: set[str] = set()
        self.stopped = 0

    def prepare_warm(self, zygote: WarmZygote) -> None:
        self.prepared.append(zygote)

    def needs_warm(self, zygote: WarmZygote) -> bool:
        return zygote not in self.prepared

    def has_failed(self, zygote: WarmZygote) -> bool:
        return zygote.key in self.failed

    def stop_idle_warm(self) -> None:
        self.stopped += 1

    def is_warm(self, zygote: WarmZygote) -> bool:
        return zygote.key in self.ready


class Node:
    def __init__(self, tmp_path: Path, level: str = FULL) -> None:
        self.zygotes = Zygotes()
        self.home = tmp_path
        packages = tmp_path / "packages"
        (packages / "torch").mkdir(parents=True)
        (packages / "torch" / "__init__.py").touch()
        self.image = Environment("/env", ("/layer/bin",), "/layer", (str(packages),))
        self.is_short = False
        self.level = level
        self.starts = self.restart()
        self.count = 0

    def restart(self, mode: Mode = "auto") -> WarmStarts:
        settings = WarmSettings(mode)
        self.starts = WarmStarts(
            settings, self.level, self.home / "imports", cast("Supervisor", self.zygotes), lambda: self.is_short
        )
        return self.starts

    def start(self, *, is_owners: bool = True, asked: str = "") -> tuple[str, ContainerSpec, WarmZygote | None]:
        self.count += 1
        meta: Object = {"name": "pod", "namespace": "default", "uid": str(self.count), "annotations": {WARM: asked}}
        spec = ContainerSpec("main", 0, ("/layer/bin/python", "x.py"), {"HOME": "/work", "RANK": "1"}, "/")
        return str(self.count), *self.starts.choose(Pod({"metadata": meta}), spec, self.image, is_owners=is_owners)

    def end(self, uid: str, *imports: str) -> None:
        (self.home / FILE).write_text("\n".join(imports))
        asyncio.run(self.starts.note_end(uid, self.home))


def test_a_program_teaches_and_the_next_ones_use_the_newest_zygote_that_is_ready(tmp_path: Path) -> None:
    node = Node(tmp_path)
    uid, spec, basic = node.start()
    assert spec.env[IMPORTS] == f"/work/{FILE}"
    assert basic is not None and not basic.learned and node.zygotes.prepared == []
    node.end(uid, "torch", "transformers")
    (first,) = node.zygotes.prepared
    assert Path(first.learned).read_text().split() == ["torch", "transformers"]
    assert "RANK" in first.varying and "HOME" not in first.varying
    node.zygotes.ready.add(first.key)
    uid, spec, used = node.start()
    assert used == first and spec.warm == first.key
    node.end(uid, "torch", "transformers", "datasets")
    second = node.zygotes.prepared[-1]
    assert second.key != first.key
    assert node.start()[2] == first, "the second is not ready yet"
    node.zygotes.ready.add(second.key)
    assert node.start()[2] == second


def test_a_zygote_that_nobody_has_used_yet_is_used_while_the_next_one_is_started(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (one, *_), (two, *_) = node.start(), node.start()
    node.end(one, "torch", "transformers")
    node.end(two, "torch", "transformers", "datasets")
    first, second = node.zygotes.prepared
    basic = node.start(is_owners=False)[2]
    assert basic is not None
    node.zygotes.ready.add(basic.key)
    assert node.start()[2] == basic
    node.zygotes.ready.add(first.key)
    assert node.start()[2] == first != second


@pytest.mark.parametrize(("level", "is_owners"), [(FULL, False), (PLAIN, True)])
def test_nothing_is_learned_from_others_or_without_a_sandbox(tmp_path: Path, level: str, is_owners: bool) -> None:
    node = Node(tmp_path, level)
    uid, spec, basic = node.start(is_owners=is_owners)
    assert IMPORTS not in spec.env
    node.end(uid, "torch", "transformers")
    assert node.zygotes.prepared == [basic]
    assert basic is not None and not basic.learned


def test_a_pod_that_asks_by_annotation_has_its_zygote_started_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    _, _, wanted = node.start(asked="true")
    assert node.zygotes.prepared == [wanted]


def test_the_next_server_expects_what_the_last_pods_used(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.starts.list_expected() == [WarmUse("default", "")], "the server's own environment"
    node.end(node.start()[0], "torch", "transformers")
    (used,) = node.zygotes.prepared
    node.zygotes.prepared.clear()
    starts = node.restart()
    (expected,) = starts.list_expected()
    assert (expected.namespace, expected.prefix) == ("default", "/env")
    found = starts.find_zygote(expected, node.image)
    assert found == used
    node.zygotes.ready.add(used.key)
    assert node.start()[2] == used, "the first Pod starts warm"
    assert node.restart("off").list_expected() == []


def test_what_others_used_is_expected_without_what_was_learned(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.end(node.start()[0], "torch", "transformers")
    node.zygotes.prepared.clear()
    node.end(node.start(is_owners=False)[0])
    (expected,) = node.restart().list_expected()
    found = node.starts.find_zygote(expected, node.image)
    assert found is not None and not found.learned


def test_an_environment_that_has_lost_torch_is_not_prepared(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (node.home / "packages" / "torch" / "__init__.py").unlink()
    assert node.starts.find_zygote(WarmUse("default", ""), node.image) is None


def test_if_what_was_learned_cannot_be_imported_torch_alone_is(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.end(node.start()[0], "torch", "transformers")
    (learned,) = node.zygotes.prepared
    node.zygotes.failed.add(learned.key)
    node.end(node.start()[0], "torch")
    basic = node.zygotes.prepared[-1]
    assert learned.learned and not basic.learned
    (expected,) = node.restart().list_expected()
    assert node.starts.find_zygote(expected, node.image) == basic


def test_nothing_is_prepared_while_memory_is_short(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.is_short = True
    node.end(node.start()[0], "torch")
    assert node.zygotes.prepared == []
    node.is_short = False
    node.end(node.start()[0], "torch")
    assert len(node.zygotes.prepared) == 1


def test_every_container_that_starts_stops_what_is_imported_because_the_machine_was_idle(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.start()
    assert node.zygotes.stopped == 1
