"""What is said when the code of a run cannot be what the user means; before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.launch.code import send

pytestmark = pytest.mark.unit


def make_project(tmp_path: Path, ignored: str = "") -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src/train.py").write_text("print(1)\n")
    (project / ".gitignore").write_text(ignored)
    return project


@pytest.mark.parametrize("rule", ["train.py", "src/"])
def test_a_script_that_is_left_out_is_told_with_the_line_that_takes_it_back(tmp_path: Path, rule: str) -> None:
    project = make_project(tmp_path, rule)
    with pytest.raises(exits.Failure) as told:
        send(project, Home(tmp_path / "home"), script="src/train.py")
    assert told.value.code == exits.RUN_CODE
    assert "the script src/train.py would not be sent" in str(told.value)
    taken_back = str(told.value).partition("`echo ")[2].partition(" >>")[0].strip("'")
    (project / ".trainmasterignore").write_text(f"{taken_back}\n")
    assert send(project, Home(tmp_path / "home"), script="src/train.py").volume


def test_a_script_that_was_removed_while_the_code_was_packed_is_not_blamed_on_an_ignore_file(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    (project / "src/train.py").unlink()
    with pytest.raises(
        exits.Failure, match=r"the script .*/project/src/train\.py was removed while the code was packed"
    ):
        send(project, Home(tmp_path / "home"), script="src/train.py")


def test_a_script_that_is_sent_is_not_talked_about(tmp_path: Path) -> None:
    assert send(make_project(tmp_path), Home(tmp_path / "home"), script="src/train.py").volume["csi"][
        "volumeAttributes"
    ]["digest"]
