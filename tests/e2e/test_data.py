"""A data scientist's script, run as it is: it reads ../data, and a model that was downloaded before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.shell import Person
from tests.support.server import clean_environ, command
from tools.frameworks import TOOL, find_environment

pytestmark = pytest.mark.e2e

COMMIT = "c0ffee" * 6 + "abcd"
SCRIPT = """
import os, pathlib

rows = open("../data/rows.csv").read().split()
try:
    from huggingface_hub import get_token, hf_hub_download
except ImportError:  # the same as the library does, without it
    cache = pathlib.Path(os.environ["HF_HOME"])
    model = cache / "hub" / "models--org--tiny"
    config = model / "snapshots" / (model / "refs" / "main").read_text() / "config.json"
    token = (cache / "token").exists() or None
else:
    config = hf_hub_download("org/tiny", "config.json", local_files_only=True)
    token = get_token()
print("rows:", rows, "config:", pathlib.Path(config).read_text(), "token:", token)
pathlib.Path("~/model.pt").expanduser().write_text("trained")
pathlib.Path("/tmp/best.pt").write_text("trained")
pathlib.Path("../data/predictions.csv").write_text("1")
"""


def put_model(owner: Path) -> None:
    cache = owner / ".cache" / "huggingface"
    model = cache / "hub" / "models--org--tiny"
    for folder in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (model / folder).mkdir(parents=True)
    (model / "blobs" / "b1").write_text("{}")
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT / "config.json").symlink_to("../../blobs/b1")
    (cache / "token").write_text("hf_secret")


def test_a_script_finds_its_data_and_its_model_and_its_files_are_kept(person: Person, tmp_path: Path) -> None:
    project, data, owner = (tmp_path / name for name in ("project", "data", "owner"))
    for folder in (project, data):
        folder.mkdir()
    put_model(owner)
    (project / "train.py").write_text(SCRIPT)
    (data / "rows.csv").write_text("1\n2\n")
    prefix = find_environment(TOOL)
    python = "python" if prefix is None else str(prefix / "bin" / "python")
    done = subprocess.run(
        command("run", "--name", "mine", "--volume", "../data", "--", python, "train.py"),
        env=clean_environ({"TRAINMASTER_HOME": str(person.home), "HOME": str(owner)}),
        cwd=project,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rows: ['1', '2'] config: {} token: None\n"
    assert "outputs: 1 file, 7 B: trainmaster outputs get mine" in done.stderr
    assert "not kept: /tmp/best.pt (7 B); write to $TRAINMASTER_OUTPUT_DIR" in done.stderr
    assert (data / "predictions.csv").read_text() == "1"
    person.must("outputs", "get", "mine", "model.pt", "--to", str(tmp_path / "kept"))
    assert (tmp_path / "kept" / "home" / "model.pt").read_text() == "trained"
