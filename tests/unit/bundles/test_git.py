"""The commit and the difference from it: from git's answer, and without git from the repository's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.bundles import git
from trainmaster.bundles.git import GitState

pytestmark = pytest.mark.unit

COMMIT = "28fccd6e2c81c09c75f4dbef90a041e4cdf5b4a9"


@pytest.mark.parametrize(
    ("output", "want"),
    [
        (f"# branch.oid {COMMIT}\0# branch.head main\0", GitState(COMMIT, False)),
        (f"# branch.oid {COMMIT}\0# branch.head main\0? new.py\0", GitState(COMMIT, True)),
        (
            f"# branch.oid {COMMIT}\0# branch.head main\x001 .M N... 100644 100644 100644 a b f.py\0",
            GitState(COMMIT, True),
        ),
        ("# branch.oid (initial)\0# branch.head main\0? a\0", GitState("", True)),
    ],
)
def test_the_answer_of_git_is_understood(output: str, want: GitState) -> None:
    assert git.parse(output.encode()) == want


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read_without_git(directory: Path, monkeypatch: pytest.MonkeyPatch) -> GitState:
    monkeypatch.setenv("PATH", "/nowhere")
    return git.ask(directory).read()


def test_without_the_program_the_commit_is_read_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / ".git/HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git/refs/heads/main", f"{COMMIT}\n")
    (tmp_path / "deep/er").mkdir(parents=True)
    assert read_without_git(tmp_path / "deep/er", monkeypatch) == GitState(COMMIT, None)


def test_a_detached_head_and_packed_references_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a/.git/HEAD", f"{COMMIT}\n")
    write(tmp_path / "b/.git/HEAD", "ref: refs/heads/main\n")
    write(tmp_path / "b/.git/packed-refs", f"# pack-refs\n{'0' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n")
    assert read_without_git(tmp_path / "a", monkeypatch).commit == COMMIT
    assert read_without_git(tmp_path / "b", monkeypatch).commit == COMMIT


def test_a_worktree_names_the_folder_of_its_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tree/.git", "gitdir: ../main/.git/worktrees/tree\n")
    write(tmp_path / "main/.git/worktrees/tree/HEAD", "ref: refs/heads/side\n")
    write(tmp_path / "main/.git/worktrees/tree/commondir", "../..\n")
    write(tmp_path / "main/.git/refs/heads/side", f"{COMMIT}\n")
    assert read_without_git(tmp_path / "tree", monkeypatch).commit == COMMIT


def test_outside_of_a_repository_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_without_git(tmp_path, monkeypatch) == GitState("", None)
    write(tmp_path / ".git/HEAD", "ref: refs/heads/main\n")
    assert read_without_git(tmp_path, monkeypatch) == GitState("", None)
