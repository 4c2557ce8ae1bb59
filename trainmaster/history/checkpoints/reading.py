"""Lists the checkpoints of a job: those in its checkpoint directory, and those found by rule in its outputs."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster import checkpoint
from trainmaster.history.checkpoints.checks import MarkerNote, find_problem, read_note, read_trainer_step
from trainmaster.history.checkpoints.formats import zips
from trainmaster.history.checkpoints.grouping import MARKER, Group, Grouping
from trainmaster.history.checkpoints.model import Checkpoint, CheckpointSource, Place, Resumable, to_printable
from trainmaster.history.checkpoints.notes import Attempts, read_attempts, read_pins
from trainmaster.history.checkpoints.opening import Damaged, Exhausted, ReadingBudget, opened
from trainmaster.history.checkpoints.scanning import Folder, scan
from trainmaster.history.results import EARLIER, HOME, OUTPUTS, RESULTS, WORKDIR, list_workdirs

CHECKPOINTS = "checkpoints"
"""Directory of TRAINMASTER_CHECKPOINT_DIR in the results of a job."""
MOST_LISTED = 2_000
_MOST_NAMES = 20_000
_MOST_TRIED = 200
_HEAD = 512
_STEP = re.compile(r"step\D?(\d{1,15})(?!\d)")
_OTHER_NUMBERS = re.compile(r"epoch|-of-")
_NUMBER = re.compile(r"(?<!\d)(\d{1,15})$")
_LATEST = 253402300799.0
"""The end of the year 9999: what a file system allows beyond cannot be written as a date."""


@dataclass(frozen=True, slots=True)
class CheckpointList:
    items: Sequence[Checkpoint] = ()
    """The newest first."""
    notes: Sequence[str] = ()
    """Why it may not be all of them."""

    def find(self, name: str) -> Checkpoint | None:
        return next((item for item in self.items if item.name == name), None)


def read_checkpoints(archive: Path, uid: str, *, outputs: bool = True) -> CheckpointList:
    """Also of a deleted job. Empty if there are none, or the job is unknown. Without `outputs` only those in the
    checkpoint directory."""
    folder = archive / RESULTS / uid
    budget = ReadingBudget()
    attempts, pins = read_attempts(folder), read_pins(folder)
    found: dict[str, Checkpoint] = {}
    notes = []
    for root, place, prefix in _list_roots(archive, uid):
        if place == "outputs" and not outputs:
            continue
        scanned = scan(root)
        if not scanned.whole:
            notes.append(f"{prefix or 'the checkpoint directory'} has more files than are looked at")
        for group in Grouping(place, _Sniffing(root, budget)).find(scanned.top):
            item = _build(root, place, prefix, group, attempts, budget)
            if item.name in found or len(found) >= MOST_LISTED:
                notes.append(f"{item.name} is not shown")
                continue
            pinned = place == "checkpoints" and group.path in pins
            found[item.name] = replace(item, pinned=pinned)
    if budget.exhausted:
        notes.append("there are more files than are looked into: some may be damaged nevertheless")
    items = sorted(found.values(), key=lambda item: (item.modified, item.step or 0, item.name), reverse=True)
    return CheckpointList(items, tuple(dict.fromkeys(notes[:5])))


def choose_resumable(folder: Path) -> Resumable:
    """Looks into the newest first, and no further than into the first one that is whole. `folder`: the checkpoint
    directory. Names that are not printable are left out, because they do not fit into a variable."""
    budget = ReadingBudget()
    passed_over: list[Checkpoint] = []
    for name in itertools.islice(list_committed(folder), _MOST_TRIED):
        found = _read_named(folder, name, budget)
        if found is None or not found.committed:
            continue  # gone meanwhile
        if found.complete:
            return Resumable(name, tuple(passed_over))
        passed_over.append(found)
    return Resumable("", tuple(passed_over))


def list_committed(folder: Path) -> list[str]:
    """Names with a marker, the newest first."""
    try:
        with os.scandir(folder) as scanned:
            entries = [entry for entry in itertools.islice(scanned, _MOST_NAMES) if entry.name.isprintable()]
    except OSError:
        return []
    found = []
    for entry in entries:
        if entry.name.startswith(".") or entry.name.endswith((*checkpoint.UNFINISHED, MARKER)):
            continue
        marker = _find_marker(folder / entry.name)
        if marker is not None:
            found.append((marker.st_mtime_ns, entry.name))
    return [name for _, name in sorted(found, reverse=True)]


def _find_marker(path: Path) -> os.stat_result | None:
    for marker in (path / MARKER, path.with_name(path.name + MARKER)):
        with suppress(OSError):
            status = marker.lstat()
            if stat.S_ISREG(status.st_mode):
                return status
    return None


def _read_named(root: Path, name: str, budget: ReadingBudget) -> Checkpoint | None:
    """The checkpoint at the top of that directory with this name."""
    top = Folder()
    for entry in (name, f"{name}{MARKER}"):
        try:
            status = os.lstat(root / entry)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            top.files[entry] = status
        elif stat.S_ISDIR(status.st_mode) and entry == name:
            top.folders[entry] = scan(root / entry).top
    groups = Grouping("checkpoints", _Sniffing(root, budget)).find(top)
    found = next((group for group in groups if group.path == name), None)
    return None if found is None else _build(root, "checkpoints", "", found, Attempts(), budget)


def _build(
    root: Path, place: Place, prefix: str, group: Group, attempts: Attempts, budget: ReadingBudget
) -> Checkpoint:
    others = tuple(group.folder.list_others()) if group.folder is not None else ()
    source = CheckpointSource(root, group.path, group.folder is None, group.describe(), others)
    note = read_note(source, group.marker, budget) if group.marker else MarkerNote()
    modified = min(max(group.get_time(), 0.0), _LATEST)
    step = note.step
    if step is None and group.format == "hugging-face":
        step = read_trainer_step(source, budget)
    return Checkpoint(
        _build_name(place, prefix, group.path),
        place,
        group.format,
        source,
        _guess_step(group.path) if step is None else step,
        note.attempt if note.attempt is not None or note.origin else attempts.find(modified),
        committed=bool(group.marker),
        problem=_find_state(place, source, group, note, budget),
        modified=modified,
        origin=note.origin,
    )


def _find_state(place: Place, source: CheckpointSource, group: Group, note: MarkerNote, budget: ReadingBudget) -> str:
    if group.is_unfinished:
        return "it is being written, or was left unfinished"
    needs_marker = place == "checkpoints" and group.folder is not None and group.format == "safetensors"
    if not group.marker and (group.format in ("file", "directory") or needs_marker):
        return "it was not committed: it has no marker"
    return find_problem(source, group.format, note, budget)


def _build_name(place: Place, prefix: str, path: str) -> str:
    shown = to_printable(path)
    if place == "checkpoints" and shown.startswith((f"{OUTPUTS}/", f"{CHECKPOINTS}/")):
        return f"{CHECKPOINTS}/{shown}"
    return f"{prefix}{shown}"


def _guess_step(path: str) -> int | None:
    """From the name, such as `step-000400`, `checkpoint-400` and `epoch=3-step=400.ckpt`."""
    stem = re.sub(r"(\.[a-z]{1,12})+$", "", path.rpartition("/")[2].lower())
    found = _STEP.search(stem)
    if found is None and not _OTHER_NUMBERS.search(stem):
        found = _NUMBER.search(stem)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class _Sniffing:
    root: Path
    budget: ReadingBudget

    def __call__(self, path: str) -> bool:
        try:
            with opened(self.root, path, self.budget) as file:
                return zips.is_torch(file.read(0, min(_HEAD, file.size)))
        except (Damaged, Exhausted):
            return False


def _list_roots(archive: Path, uid: str) -> Iterator[tuple[Path, Place, str]]:
    """As `history.results` names them."""
    folder = archive / RESULTS / uid
    yield folder / CHECKPOINTS, "checkpoints", ""
    yield folder / OUTPUTS, "outputs", f"{OUTPUTS}/"
    for number, workdir in enumerate(list_workdirs(archive, uid)):
        earlier = f"{OUTPUTS}/{EARLIER}/{workdir.pod}/"
        yield workdir.files, "outputs", earlier if number else f"{OUTPUTS}/{WORKDIR}/"
        yield workdir.home, "outputs", f"{earlier}{HOME}/" if number else f"{OUTPUTS}/{HOME}/"
