"""The example of docs/code.md, as a person runs it: packed, trained, changed meanwhile, deleted; its outputs stay."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.shell import Person

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "code"


def commit(project: Path) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=project, check=True)


def test_a_directory_trains_and_its_outputs_outlive_the_job(person: Person, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    commit(project)
    packed = json.loads(person.must("code", "pack", str(project), "-o", "json"))
    assert packed["annotations"]["trainmaster.dev/git-dirty"] == "false"
    assert packed["files"] == 5
    (project / "train.py").write_text("raise SystemExit('changed after it was sent')\n")
    changed = json.loads(person.must("code", "pack", str(project), "-o", "json"))
    assert changed["annotations"]["trainmaster.dev/git-dirty"] == "true"

    person.must("up", "--detach")
    manifest = (project / "trainjob.yaml").read_text().replace("DIGEST", packed["digest"])
    person.kubectl("apply", "-f", "-", stdin=manifest)
    person.kubectl("wait", "--for=condition=Complete", "trainjob/code", "--timeout=80s")
    want = ["weights-0.json", "weights-1.json", "workdir/loss.csv"]
    assert [entry["path"] for entry in json.loads(person.must("outputs", "list", "code", "-o", "json"))] == want

    person.kubectl("delete", "trainjob", "code")
    person.must("outputs", "get", "code", "loss.csv", "weights-1.json", "--to", str(tmp_path / "kept"))
    assert len((tmp_path / "kept/workdir/loss.csv").read_text().splitlines()) == 200
    person.must("down")
    assert "weights-0.json" in person.must("outputs", "list", "code")
    person.must("history", "purge", "code", "--yes")
    gone = person.trainmaster("outputs", "list", "code")
    assert gone.code == 7
    assert "trainmaster history list" in gone.err
    assert list((person.home / "history" / "results").iterdir()) == []
