"""`trainmaster init`: what it writes, that it never overwrites, and that what it writes works."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import trainmaster
from trainmaster.cli import exits
from trainmaster.cli.commands.init import build, choose_name
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit

FILES = {"train.py", "trainjob.yaml", "README.md", ".trainmasterignore"}


def run(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main(argv, CommandContext({}, out, err))
    return code, out.getvalue(), err.getvalue()


def test_a_project_is_written_and_says_what_to_type(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "My Project 2"
    code, out, _ = run("init", str(tmp_path / "else" / ".." / "deep" / "My Project 2"))
    assert code == exits.OK
    assert set(os.listdir(folder)) == FILES
    assert f"wrote {folder / 'train.py'}\n" in out
    said = out.splitlines()[-1].removeprefix("try: ")
    assert said.endswith(" && trainmaster run --nodes 2 train.py")
    _, where = shlex.split(said.partition(" && ")[0])
    assert os.path.normpath(where) == str(folder), "it can be typed as it stands"
    job = yaml.safe_load((folder / "trainjob.yaml").read_text())
    assert job["metadata"]["name"] == "my-project"
    for file in FILES:
        assert "@" not in (folder / file).read_text(), "a gap that was not filled"


@pytest.mark.parametrize("flag", ["--torch", "--plain"])
def test_the_manifest_would_run_and_the_program_compiles(tmp_path: Path, flag: str) -> None:
    folder = tmp_path / "quo'te \"d"
    assert run("init", flag, str(folder))[0] == exits.OK
    code, out, _ = run("check", "-f", str(folder / "trainjob.yaml"), "--strict")
    assert code == exits.OK, out
    source = (folder / "train.py").read_text()
    compile(source, "train.py", "exec")
    assert ("import torch" in source) == (flag == "--torch")
    job = yaml.safe_load((folder / "trainjob.yaml").read_text())
    assert str(folder) in json.dumps(job, ensure_ascii=False).replace('\\"', '"')


def train(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(Path(trainmaster.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "train.py", *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plain_program_learns_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run("init", "--plain", str(tmp_path / "p"))
    first = train(tmp_path / "p", "--steps", "60")
    assert "rank 0 of 1" in first and "step   60 loss" in first
    second = train(tmp_path / "p", "--steps", "120")
    assert "goes on after step 50" in second
    result = json.loads((tmp_path / "p" / "outputs" / "result.json").read_text())
    assert result["loss"] < 0.1


@pytest.mark.parametrize("present", sorted(FILES))
def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, present: str) -> None:
    (tmp_path / present).write_text("mine")
    code, _, err = run("init", str(tmp_path))
    assert code == exits.FAILED
    assert present in err and "nothing was written" in err
    assert os.listdir(tmp_path) == [present]
    assert (tmp_path / present).read_text() == "mine"


def test_a_broken_link_counts_as_present(tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to(tmp_path / "nowhere")
    assert run("init", str(tmp_path))[0] == exits.FAILED
    assert not (tmp_path / "nowhere").exists()


def test_other_files_of_a_directory_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    assert run("init", str(tmp_path))[0] == exits.OK
    assert set(os.listdir(tmp_path)) == {*FILES, "data.csv"}


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--name", "Not_One"), exits.USAGE, "is no name for a job"),
        (("--name", "x" * 41), exits.USAGE, "at most 40"),
        (("--torch", "--plain"), exits.USAGE, ""),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, argv: tuple[str, ...], code: int, words: str) -> None:
    found, _, err = run("init", str(tmp_path / "p"), *argv)
    assert found == code
    assert words in err
    assert not (tmp_path / "p").exists()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run("init", str(tmp_path / "file"))[0] == exits.USAGE
    code, _, err = run("init", str(tmp_path / "file" / "inside"))
    assert code == exits.FAILED and "cannot be written" in err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("My Project", "my-project"),
        ("2026-run", "run"),
        ("---", "starter"),
        ("Ünïcode", "n-code"),
        ("a" * 60, "a" * 40),
    ],
)
def test_names_of_jobs_are_made_from_directories(name: str, expected: str) -> None:
    assert choose_name("", Path("/x") / name) == expected


def test_both_programs_tell_how_they_are_started() -> None:
    for with_torch, command in ((True, "torchrun train.py"), (False, "python train.py")):
        assert command in build("a", Path("/x"), with_torch=with_torch)["trainjob.yaml"]
