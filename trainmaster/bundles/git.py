"""Finds a directory's commit, and whether the directory differs from it.

`git` is run once, in parallel with walking the files: it handles every repository, worktree and filter, and adds no
time. Without git, or if it takes too long, the commit is read from the repository's files and the difference is
unknown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trainmaster.bundles.ignoring import find_repository

_SECONDS = 5.0
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_ARGUMENTS = (
    "--no-optional-locks", "-c", "core.fsmonitor=false",  # never run a hook of the repository
    "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--", ".",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GitState:
    commit: str = ""
    dirty: bool | None = None


class GitQuery:
    """A running `git status`."""

    def __init__(self, repository: Path | None, process: subprocess.Popen[bytes] | None) -> None:
        self._repository = repository
        self._process = process

    def read(self) -> GitState:
        if self._repository is None:
            return GitState()
        if self._process is not None:
            with self._process:
                try:
                    output, _ = self._process.communicate(timeout=_SECONDS)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    output = b""
            if self._process.returncode == 0:
                return parse(output)
        return GitState(read_commit(self._repository))


def ask(directory: Path) -> GitQuery:
    repository = find_repository(directory)
    program = shutil.which("git") if repository is not None else None
    if program is None:
        return GitQuery(repository, None)
    try:
        process = subprocess.Popen(
            [program, *_ARGUMENTS],
            cwd=directory,
            env=_build_environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return GitQuery(repository, None)
    return GitQuery(repository, process)


def _build_environ() -> dict[str, str]:
    """Without the variables that git's hooks set, which refer to another repository."""
    foreign = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    return {name: text for name, text in os.environ.items() if name not in foreign}


def parse(output: bytes) -> GitState:
    """Parses `git status --porcelain=v2 --branch -z`: headers, then one entry per difference."""
    commit, dirty = "", False
    for entry in output.split(b"\0"):
        if entry.startswith(b"# branch.oid "):
            name = entry.removeprefix(b"# branch.oid ").decode("ascii", "replace")
            commit = name if _COMMIT.fullmatch(name) else ""
        elif entry and not entry.startswith(b"#"):
            dirty = True
    return GitState(commit, dirty)


def read_commit(repository: Path) -> str:
    """Reads HEAD and the references; empty if there is no commit yet."""
    folder = _get_folder(repository)
    head = _read_text(folder / "HEAD")
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref: ")
    shared = os.path.normpath(folder / (_read_text(folder / "commondir") or "."))
    for place in (folder, Path(shared)):
        if _COMMIT.fullmatch(found := _read_text(place / name)):
            return found
    for line in _read_text(Path(shared) / "packed-refs").splitlines():
        commit, _, reference = line.partition(" ")
        if reference == name and _COMMIT.fullmatch(commit):
            return commit
    return ""


def _get_folder(repository: Path) -> Path:
    """In worktrees and submodules, `.git` is a file that names the folder."""
    place = repository / ".git"
    named = _read_text(place).removeprefix("gitdir: ") if place.is_file() else ""
    return Path(os.path.normpath(repository / named)) if named else place


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
