"""The option that helps a program find a file that this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.cli.launch.missing_files import suggest_volume

pytestmark = pytest.mark.unit

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
READ_ONLY = "OSError: [Errno 30] Read-only file system: '{}'"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("code/raw", "data", "top level"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("code/raw/b.csv", "data/a.csv", "top level/c.csv"):
        (tmp_path / name).write_text("1")
    return tmp_path / "code"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("../data/a.csv", "--volume ../data:ro", id="beside the code"),
        pytest.param("../data", "--volume ../data:ro", id="a directory"),
        pytest.param("raw/b.csv", "--volume ./raw:ro", id="left out of the code"),
        pytest.param("../top level/c.csv", "--volume '../top level:ro'", id="with a space"),
        pytest.param("{up}/data/a.csv", "--volume {up}/data:ro", id="an absolute path"),
        pytest.param("../data/other.csv", "", id="not on this machine either"),
        pytest.param("../data/a\x1b[2J.csv", "", id="a name that would change the terminal"),
    ],
)
def test_a_file_that_exists_here_comes_with_its_option(project: Path, path: str, want: str) -> None:
    up = str(project.parent)
    said = suggest_volume(MISSING.format(path.format(up=up)), project, project)
    assert f"`{want.format(up=up)}`" in said if want else said == ""


def test_the_option_is_relative_to_where_the_command_was_given(project: Path) -> None:
    assert "`--volume ./data:ro`" in suggest_volume(MISSING.format("../data/a.csv"), project.parent, project)
    assert "`--volume ./code/raw:ro`" in suggest_volume(MISSING.format("raw/b.csv"), project.parent, project)


def test_without_code_only_absolute_paths_mean_something(project: Path) -> None:
    assert suggest_volume(MISSING.format("../data/a.csv"), project, None) == ""
    assert "--volume" in suggest_volume(MISSING.format(project.parent / "data" / "a.csv"), project, None)


def test_who_may_not_write_is_told_where_to(project: Path) -> None:
    said = suggest_volume(READ_ONLY.format(project.parent / "data" / "new" / "model.pt"), project, project)
    assert f"`--volume {project.parent}/data`" in said and "$TRAINMASTER_OUTPUT_DIR" in said
    said = suggest_volume(READ_ONLY.format("/model.pt"), project, project)
    assert "--volume" not in said and "$TRAINMASTER_OUTPUT_DIR" in said


@pytest.mark.parametrize("error", ["", "ValueError: '/etc/passwd'", "OSError: [Errno 5] Input/output error: '/etc'"])
def test_other_errors_need_no_volume(project: Path, error: str) -> None:
    assert suggest_volume(error, project, project) == ""
