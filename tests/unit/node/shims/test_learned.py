"""What is remembered of the imports of finished programs, and what a program cannot make the server remember."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.node.images import layer_hook
from trainmaster.node.shims.learned import FILE, Learner
from trainmaster.node.shims.warm import compute_budget
from trainmaster.shim.warm import conditions

pytestmark = pytest.mark.unit

MANY = [f"big.part{number}" for number in range(30)]


def read(learner: Learner, namespace: str = "default") -> list[str]:
    found = learner.find("/layer", namespace)
    return [] if found is None else Path(found.path).read_text().split()


def teach(learner: Learner, tmp_path: Path, *modules: str) -> list[str]:
    (tmp_path / FILE).write_text("\n".join(modules))
    learner.learn("/layer", "default", tmp_path)
    return read(learner)


def test_modules_are_remembered_in_order_for_one_namespace_and_over_a_restart(tmp_path: Path) -> None:
    root = tmp_path / "root"
    learner = Learner(root)
    assert learner.find("/layer", "default") is None
    assert teach(learner, tmp_path, "big", *MANY) == ["big", *MANY]
    before = learner.find("/layer", "default")
    assert teach(learner, tmp_path, "big", "big.other") == ["big", *MANY], "not worth another zygote"
    assert learner.find("/layer", "default") == before
    assert teach(learner, tmp_path, "big", "small", "big.other") == ["big", *MANY, "small", "big.other"]
    assert learner.find("/layer", "default") != before
    assert read(Learner(root)) == ["big", *MANY, "small", "big.other"]
    assert read(learner, "team") == []


def test_a_program_cannot_smuggle_anything_but_names(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "root")
    bad = ("../up", "a b", "os;x", "-c", "\x00", "a..b", "a.", "trainmaster.shim", "pip", "ünï", "x" * 600_000)
    assert teach(learner, tmp_path, "good.one", *bad) == ["good.one"]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "missing home"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    home, secret = tmp_path / "home", tmp_path / "secret"
    secret.write_text("secret")
    if kind != "missing home":
        home.mkdir()
    if kind == "link":
        (home / FILE).symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(home / FILE)
    elif kind == "directory":
        (home / FILE).mkdir()
    learner = Learner(tmp_path / "root")
    learner.learn("/layer", "default", home)
    assert read(learner) == []


def test_a_program_tells_at_its_end_what_it_imported_from_the_environment(tmp_path: Path) -> None:
    place = tmp_path / "lib" / "site-packages"
    (place / "outer").mkdir(parents=True)
    (place / "outer" / "__init__.py").write_text("")
    (place / "outer" / "inner.py").write_text("")
    (place / f"{layer_hook.NAME}.py").write_bytes(Path(layer_hook.__file__).read_bytes())
    (tmp_path / "own.py").write_text("")
    code = f"import {layer_hook.NAME}, own, outer.inner, json, sys; sys.modules['odd'] = 1"
    told = tmp_path / "told"
    environ = {"PYTHONPATH": f"{place}:{tmp_path}", layer_hook.IMPORTS: str(told)}
    subprocess.run([sys.executable, "-S", "-c", code], env=environ, cwd=tmp_path, check=True)
    assert told.read_text().split() == ["outer", "outer.inner"]
    subprocess.run([sys.executable, "-S", "-c", code.replace("outer.inner", "outer")], env=environ, check=True)
    assert told.read_text().split() == ["outer", "outer.inner"], "the longer list stays"


def test_the_warm_program_finds_the_hook_of_its_layer() -> None:
    assert conditions.LAYER_HOOK == layer_hook.NAME


def test_the_budget_is_a_share_of_the_memory_unless_it_is_set() -> None:
    found = [compute_budget(mib, gib << 30) >> 20 for mib, gib in ((0, 2), (0, 4), (0, 64), (100, 2))]
    assert found == [0, 256, 4096, 100]
