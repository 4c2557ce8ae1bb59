"""What a TrainJob left behind, as people look for it: its output directory, and the working directory of rank 0.

    <archive>/results/<TrainJob uid>/outputs/                    TRAINMASTER_OUTPUT_DIR, while the job runs and after
    <archive>/results/<TrainJob uid>/workdirs/<Pod uid>/files/   what rank 0 wrote beside its code, by attempt

The node writes both (`node.disk.results`, `node.disk.outputs`), `purging` removes them with the record. Listed are the
output directory's files under their own names, those of the last working directory below `workdir/`, and those of
earlier attempts below `earlier/<Pod>/`. Links are followed by nobody: one that leads out of its directory is not
listed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.bundles.views import is_inside
from trainmaster.shim.trees import TreeWalk

RESULTS = "results"
"""Folder of checkpoints and outputs below the archive, by TrainJob uid."""
OUTPUTS = "outputs"
WORKDIRS = "workdirs"
ABOUT = "about.json"
FILES = "files"
WORKDIR = "workdir"
EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class Output:
    path: str
    """As it is listed and asked for."""
    source: Path
    bytes: int
    modified: float
    """Seconds of the epoch."""
    link: str = ""
    """Where it leads, for a symbolic link."""
    root: Path = Path()
    """The directory that was looked through, which is nobody's but ours."""


@dataclass(frozen=True, slots=True)
class Workdir:
    """What rank 0 of one attempt left."""

    pod: str
    attempt: int
    kept_at: float
    files: Path


def list_outputs(archive: Path, uid: str) -> list[Output]:
    """Sorted by path; empty when there is nothing, or nobody knows that job."""
    home = archive / RESULTS / uid
    found = list(_list_below(home / OUTPUTS, ""))
    for number, workdir in enumerate(list_workdirs(archive, uid)):
        found += _list_below(workdir.files, f"{WORKDIR}/" if number == 0 else f"{EARLIER}/{workdir.pod}/")
    return sorted(found, key=lambda output: output.path)


def list_workdirs(archive: Path, uid: str) -> list[Workdir]:
    """The last attempt first."""
    folder = archive / RESULTS / uid / WORKDIRS
    found = []
    for place in folder.iterdir() if folder.is_dir() else ():
        if place.name.startswith("."):
            continue  # not whole yet
        try:
            about = json.loads((place / ABOUT).read_bytes() or b"{}")
            kept_at = (place / ABOUT).stat().st_mtime
        except FileNotFoundError:
            continue  # it is being removed
        # A power cut may have left the note empty: the files are there all the same.
        pod, attempt = str(about.get("pod") or place.name), int(about.get("attempt") or 0)
        found.append(Workdir(pod, attempt, kept_at, place / FILES))
    return sorted(found, key=lambda workdir: (-workdir.attempt, -workdir.kept_at, workdir.pod))


def _list_below(root: Path, prefix: str) -> Iterator[Output]:
    """By descriptor: the job may run, and exchange a directory for a link to somewhere else meanwhile."""
    try:
        walk = TreeWalk(os.fspath(root))
    except OSError:
        return
    for entry in walk:
        status = entry.status
        try:
            link = os.readlink(entry.name, dir_fd=entry.directory) if stat.S_ISLNK(status.st_mode) else ""
        except OSError:
            continue  # a job that runs may remove what it wrote
        if stat.S_ISREG(status.st_mode) or (link and is_inside(entry.path, link)):
            source = root / entry.path
            yield Output(f"{prefix}{entry.path}", source, status.st_size, status.st_mtime, link, root)


def open_output(output: Output) -> int:
    """A descriptor of the file, if it still is one: what became a link or a pipe since is an OSError."""
    from trainmaster.shim.sandbox import beneath  # noqa: PLC0415 - for few, and `run` lists outputs at every end

    root = beneath.open_directory(os.fspath(output.root))
    try:
        return beneath.open_file(root, os.fspath(output.source.relative_to(output.root)))
    finally:
        os.close(root)


def choose(outputs: Sequence[Output], asked: Sequence[str]) -> tuple[list[Output], list[str]]:
    """Those that are asked for, a file or everything below a directory, and what was asked for in vain.

    A name that is not there is looked for in the working directory too: people ask for it as their program wrote it.
    """
    chosen: dict[str, Output] = {}
    missing = []
    for name in asked:
        plain = os.path.normpath(name)
        found = _select_below(outputs, plain) or _select_below(outputs, f"{WORKDIR}/{plain}")
        if not found:
            missing.append(name)
        chosen.update({output.path: output for output in found})
    return list(chosen.values()), missing


def _select_below(outputs: Sequence[Output], name: str) -> list[Output]:
    if name == ".":
        return list(outputs)
    return [output for output in outputs if output.path == name or output.path.startswith(f"{name}/")]
