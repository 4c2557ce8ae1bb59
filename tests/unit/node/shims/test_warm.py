"""Which Pods may come from which warm zygote, and which programs may begin warm."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Environment
from trainmaster.node.shims.warm import WarmSettings, WarmZygote, decide_warm
from trainmaster.shim.protocol import ENVIRON, FULL, PLAIN, USER, ContainerSpec, ResourceLimits
from trainmaster.shim.warm import zygote
from trainmaster.shim.warm.conditions import WarmState, find_variable, parse_command, split_report

pytestmark = pytest.mark.unit

AUTO = WarmSettings("auto")


def make_pod(asked: str | None = None, namespace: str = "default") -> Object:
    annotations = {} if asked is None else {"trainmaster.dev/warm": asked}
    return {"metadata": {"name": "pod", "namespace": namespace, "annotations": annotations}}


def make_image(tmp_path: Path, *packages: str) -> Environment:
    for name in packages:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").touch()
    return Environment("/env", ("/layer/bin", "/programs"), "/layer", (str(tmp_path),))


def decide(tmp_path: Path, pod: Object, settings: WarmSettings = AUTO, **fields: Any) -> WarmZygote | None:
    spec = replace(ContainerSpec("main", 0, ("/layer/bin/python", "x.py"), {}, "/"), **fields)
    return decide_warm(Pod(pod), spec, make_image(tmp_path, "torch", "numpy"), settings)


def test_the_annotation_goes_over_the_setting(tmp_path: Path) -> None:
    off = WarmSettings("off")
    seen = [
        bool(decide(tmp_path, make_pod(asked), mode)) for mode in (off, AUTO) for asked in (None, "true", "false", "x")
    ]
    assert seen == [False, True, False, False, True, True, False, True]


def test_an_environment_without_torch_is_left_alone(tmp_path: Path) -> None:
    spec = ContainerSpec("main", 0, ("/layer/bin/python", "x.py"), {}, "/")
    assert decide_warm(Pod(make_pod("true")), spec, make_image(tmp_path, "numpy"), AUTO) is None


def test_other_users_and_other_interpreters_are_left_alone(tmp_path: Path) -> None:
    assert decide(tmp_path, make_pod(), run_as_user=os.geteuid() + 1) is None
    assert decide(tmp_path, make_pod(), argv=("/usr/bin/python3", "x.py")) is None
    assert decide(tmp_path, make_pod(), run_as_user=os.geteuid(), argv=("/programs/torchrun", "x.py")) is not None


def test_what_was_installed_for_a_namespace_is_not_imported_with_the_rights_of_the_server(tmp_path: Path) -> None:
    spec = ContainerSpec("main", 0, ("/layer/bin/python", "x.py"), {}, "/")
    made = replace(make_image(tmp_path, "torch"), made=True)
    assert decide_warm(Pod(make_pod("true")), spec, make_image(tmp_path, "torch"), AUTO) is not None
    assert decide_warm(Pod(make_pod("true")), spec, made, AUTO) is None


def test_namespaces_and_changed_packages_have_zygotes_of_their_own(tmp_path: Path) -> None:
    first, again = decide(tmp_path, make_pod()), decide(tmp_path, make_pod())
    other = decide(tmp_path, make_pod(namespace="team"))
    os.utime(tmp_path, ns=(1, 1))
    changed = decide(tmp_path, make_pod())
    assert first is not None and other is not None and changed is not None
    assert first == again
    assert len({first.key, other.key, changed.key}) == 3
    assert first.imports[:2] == ("numpy", "torch")


READS = {
    "HOME": ("/", frozenset({"sysconfig"})),
    "CI": (None, frozenset({"some.module"})),
    "MODE": ("slow", frozenset({"some.module"})),
}
WARMTH = WarmState("key", "/layer", (), READS, (), frozenset(), (), "label")


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, ""),
        ({"HOME": "/home", "EPOCHS": "3", "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "RANK": "1"}, ""),
        ({"OMP_NUM_THREADS": "4"}, ""),
        ({"OMP_NUM_THREADS": "4,2"}, "OMP_NUM_THREADS"),
        ({"TORCHELASTIC_RUN_ID": "x", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, ""),
        ({"MODE": "slow"}, ""),
        *(
            ({name: "1"}, name)
            for name in ("CI", "MODE", "LD_PRELOAD", "PYTHONPATH", "KMP_AFFINITY", "TORCH_LOGS", "TQDM_DISABLE", "TZ")
        ),
        ({"PYTHONUNBUFFERED": ""}, "PYTHONUNBUFFERED"),
    ],
)
def test_a_variable_that_comes_too_late_is_found(env: dict[str, str], found: str) -> None:
    assert find_variable({**ENVIRON, "MODE": "slow", **env}, WARMTH) == found


def test_a_variable_that_only_the_imports_had_is_found() -> None:
    without = {name: value for name, value in ENVIRON.items() if name != "LANG"}
    assert find_variable({"MODE": "slow", **without}, WARMTH) == "LANG"
    assert find_variable({"MODE": "slow", **ENVIRON}, WARMTH) == ""
    assert find_variable(ENVIRON, WARMTH) == "MODE"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["x.py", "-m"], "script"),
        (["-u", "x.py"], "script"),
        (["-u", "-m", "x"], "module"),
        (["-c", "1"], "code"),
        (["-O", "x.py"], None),
        (["-Xdev", "x.py"], None),
        (["-mx"], None),
        (["-m"], None),
        (["-"], None),
        ([], None),
    ],
)
def test_only_plain_command_lines_are_understood(words: list[str], kind: str | None) -> None:
    command = parse_command(("python", *words))
    assert (command.kind if command else None) == kind


def test_a_note_is_told_from_an_error() -> None:
    assert split_report(b"") == ("", "")
    assert split_report(b"\0cold\n") == ("cold", "")
    assert split_report(b"\0cold\nno such file") == ("cold", "no such file")
    assert split_report(b"no such file") == ("", "no such file")


def test_a_memory_limit_that_is_only_watched_keeps_a_program_cold(tmp_path: Path) -> None:
    spec = ContainerSpec("main", 0, ("/layer/bin/python", "x.py"), {}, "/", limits=ResourceLimits(memory=1 << 30))
    image = make_image(tmp_path, "torch")
    assert decide_warm(Pod(make_pod()), spec, image, AUTO, FULL) is not None
    assert [decide_warm(Pod(make_pod()), spec, image, AUTO, level) for level in (USER, PLAIN)] == [None, None]


def test_a_module_that_looks_at_all_variables_reads_only_those_it_takes() -> None:
    reads: dict[str, tuple[str | None, set[str]]] = {}
    plain = type(os.environ)
    os.environ.__class__ = zygote._build_recorder(plain, reads)
    try:
        code = "import os\nfor name, value in os.environ.items(): pass"
        exec(code, {"__name__": "tqdm.utils"})
        assert "PATH" not in reads
        exec(code, {"__name__": "another"})
        assert reads["PATH"][1] == {"another"}
    finally:
        os.environ.__class__ = plain
