"""What is in the repository, for the tests about its shape: tracked and new files, parsed once."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_GENERATED = ("tests/kube/go/", "tests/golden/data/", "LICENSE")


@functools.cache
def list_files() -> tuple[Path, ...]:
    """Tracked files and new ones that are not ignored; relative to the root. Works in an export without git too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        names = [Path(name) for name in done.stdout.split("\0") if name]
    else:
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = [name for name in found if not any(part.startswith(".") for part in name.parts[:-1])]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def list_python(*folders: str) -> tuple[Path, ...]:
    return tuple(name for name in list_files() if name.suffix == ".py" and name.parts[0] in folders)


def read_texts() -> Iterator[tuple[Path, str]]:
    """Every text file that people of this project wrote."""
    for name in list_files():
        if not str(name).startswith(_GENERATED):
            try:
                yield name, (ROOT / name).read_text()
            except UnicodeDecodeError:
                continue


@functools.cache
def parse(name: Path) -> ast.Module:
    return ast.parse((ROOT / name).read_text())
