"""`trainmaster doctor` tries what the machine allows and says it to people and programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = pytest.mark.node


def run(tmp_path: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main(["doctor", "--home", str(tmp_path), *arguments], CommandContext(environ, out, err))
    return code, out.getvalue(), err.getvalue()


def test_programs_get_every_check_with_its_state(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "-o", "json")
    data = json.loads(out)
    assert code == exits.OK and data["healthy"] is True
    seen = {line["check"]: line for line in data["checks"]}
    assert {"system", "home", "isolation", "mounts", "network", "control groups", "gpus", "disk"} <= set(seen)
    assert seen["isolation"]["seen"].partition(":")[0] in ("full", "user", "plain")


def test_people_get_a_table(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, TRAINMASTER_NODE_ISOLATION="plain")
    lines = [line.split(maxsplit=2) for line in out.splitlines() if line]
    assert code == exits.OK and lines[0] == ["CHECK", "STATE", "SEEN"]
    assert ["isolation", "ok", "plain: set to plain: no namespaces, one network for all jobs"] in lines


def test_a_wrong_level_is_a_wrong_setting(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, TRAINMASTER_NODE_ISOLATION="fortress")
    assert code == exits.USAGE and "TRAINMASTER_NODE_ISOLATION" in err
