"""The results of a TrainJob: its output directory, and what rank 0 wrote to its working directory and its home.

    <archive>/results/<TrainJob uid>/outputs/                    TRAINMASTER_OUTPUT_DIR, while the job runs and after
    <archive>/results/<TrainJob uid>/workdirs/<Pod uid>/files/   what rank 0 wrote beside its code, by attempt
    <archive>/results/<TrainJob uid>/workdirs/<Pod uid>/home/    what rank 0 wrote to $HOME
    <archive>/results/<TrainJob uid>/lost/<Pod uid>.json         what is not kept (`lost_files`)
    <archive>/results/<TrainJob uid>/code.json                   its code, if that is in a ConfigMap

The node writes them (`node.disk.results`, `node.disk.outputs`), `purging` removes them with the record. The output
directory's files are listed under their own names, those of the last working directory in `workdir/`, those of the last
home in `home/`, and those of earlier attempts in `earlier/<Pod>/`. Links are not followed: one that leads out of its
directory is not listed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.bundles.views import is_inside
from trainmaster.shim.trees import TreeWalk

RESULTS = "results"
"""Directory of checkpoints and outputs in the archive, by TrainJob uid."""
OUTPUTS = "outputs"
WORKDIRS = "workdirs"
ABOUT = "about.json"
FILES = "files"
HOME = "home"
LOST = "lost"
WORKDIR = "workdir"
EARLIER = "earlier"
_CODE = "code.json"


@dataclass(frozen=True, slots=True)
class Output:
    path: str
    """The path for listing and requesting it."""
    source: Path
    bytes: int
    modified: float
    """Seconds since the epoch."""
    link: str = ""
    """The target of a symbolic link."""
    root: Path = Path()
    """The directory that was searched, which jobs cannot replace."""


@dataclass(frozen=True, slots=True)
class Workdir:
    """What rank 0 of one attempt left in its working directory and its home."""

    pod: str
    attempt: int
    kept_at: float
    files: Path
    home: Path


def list_outputs(archive: Path, uid: str) -> list[Output]:
    """Sorted by path; empty if there is nothing, or the job is unknown."""
    home = archive / RESULTS / uid
    found = list(_list_below(home / OUTPUTS, ""))
    for number, workdir in enumerate(list_workdirs(archive, uid)):
        earlier = f"{EARLIER}/{workdir.pod}/"
        found += _list_below(workdir.files, earlier if number else f"{WORKDIR}/")
        found += _list_below(workdir.home, f"{earlier}{HOME}/" if number else f"{HOME}/")
    return sorted(found, key=lambda output: output.path)


def list_workdirs(archive: Path, uid: str) -> list[Workdir]:
    """The last attempt first."""
    folder = archive / RESULTS / uid / WORKDIRS
    found = []
    for place in folder.iterdir() if folder.is_dir() else ():
        if place.name.startswith("."):
            continue  # not complete yet
        try:
            about = json.loads((place / ABOUT).read_bytes() or b"{}")
            kept_at = (place / ABOUT).stat().st_mtime
        except FileNotFoundError:
            continue  # being removed
        # The metadata may be empty after a power failure; the files exist nevertheless.
        pod, attempt = str(about.get("pod") or place.name), int(about.get("attempt") or 0)
        found.append(Workdir(pod, attempt, kept_at, place / FILES, place / HOME))
    return sorted(found, key=lambda workdir: (-workdir.attempt, -workdir.kept_at, workdir.pod))


def _list_below(root: Path, prefix: str) -> Iterator[Output]:
    """Uses directory descriptors, because a running job could replace a directory by a link in the meantime."""
    try:
        walk = TreeWalk(os.fspath(root))
    except OSError:
        return
    for entry in walk:
        status = entry.status
        try:
            link = os.readlink(entry.name, dir_fd=entry.directory) if stat.S_ISLNK(status.st_mode) else ""
        except OSError:
            continue  # a running job may remove its files
        if stat.S_ISREG(status.st_mode) or (link and is_inside(entry.path, link)):
            source = root / entry.path
            yield Output(f"{prefix}{entry.path}", source, status.st_size, status.st_mtime, link, root)


def open_output(output: Output) -> int:
    """A descriptor of the file. Raises OSError if it has become a link or a pipe."""
    from trainmaster.shim.sandbox import beneath  # noqa: PLC0415 - for few, and `run` lists outputs at every end

    root = beneath.open_directory(os.fspath(output.root))
    try:
        return beneath.open_file(root, os.fspath(output.source.relative_to(output.root)))
    finally:
        os.close(root)


def choose(outputs: Sequence[Output], asked: Sequence[str]) -> tuple[list[Output], list[str]]:
    """The requested outputs, a file or everything in a directory, and the names that were not found.

    A name that is not found is also searched in the working directory and the home, because that is how the program
    wrote it.
    """
    chosen: dict[str, Output] = {}
    missing = []
    for name in asked:
        plain = os.path.normpath(name)
        places = (plain, f"{WORKDIR}/{plain}", f"{HOME}/{plain.removeprefix('~/')}")
        found = next(filter(None, (_select_below(outputs, place) for place in places)), [])
        if not found:
            missing.append(name)
        chosen.update({output.path: output for output in found})
    return list(chosen.values()), missing


def _select_below(outputs: Sequence[Output], name: str) -> list[Output]:
    if name == ".":
        return list(outputs)
    return [output for output in outputs if output.path == name or output.path.startswith(f"{name}/")]


def keep_code(archive: Path, uid: str, config_map: Fields) -> None:
    """Stores the ConfigMap with the code of a job, which is deleted with the job. Blocks. Code does not change, so what
    is there already stays. Raises OSError."""
    folder = archive / RESULTS / uid
    path = folder / _CODE
    if path.exists():
        return
    content = {name: config_map[name] for name in ("data", "binaryData") if config_map.get(name)}
    meta = {"name": read_text(config_map, "metadata", "name"), "labels": read_fields(config_map, "metadata", "labels")}
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{_CODE}"
    draft.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **content}))
    os.replace(draft, path)


def find_code(archive: Path, uid: str) -> Object | None:
    """The ConfigMap that `keep_code` has stored; None if there is none, or it is damaged. Blocks."""
    try:
        found = json.loads((archive / RESULTS / uid / _CODE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
