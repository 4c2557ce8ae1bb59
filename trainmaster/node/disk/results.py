"""Results of a TrainJob: checkpoints and outputs, in one directory for all its ranks and attempts.

    <root>/<TrainJob uid>/checkpoints/         TRAINMASTER_CHECKPOINT_DIR
    <root>/<TrainJob uid>/outputs/             TRAINMASTER_OUTPUT_DIR
    <root>/<TrainJob uid>/resume.<JobSet>.<n>  which checkpoint attempt n resumes from; decided once, for all ranks
                                               (`history.checkpoints.notes` reads it, too)

They outlive the Pods and the job; history deletes them (`history.purging`). The first rank that starts records the
choice of a checkpoint: a rank that starts later, or again after a crash of the control plane, gets the same one even if
a faster rank has saved a newer one meanwhile. A rank that finds another Pod recorded in its place starts a new round of
the same attempt (the job was suspended and resumed, or a Job replaced that Pod alone) and decides anew.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from trainmaster import checkpoint
from trainmaster.history.checkpoints.model import Resumable
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.kit.clock import format_micro_time
from trainmaster.node.launch.containers import INSIDE
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Mount

OUTPUT = "TRAINMASTER_OUTPUT_DIR"
_CHECKPOINTS, _OUTPUTS = "checkpoints", "outputs"
NOTHING = Resumable()
_CHECKPOINT_NAME = re.compile(r"checkpoint|\.(pt|pth|ckpt|bin|safetensors)(\.|$)|^(epoch|step)[-_=]?\d", re.IGNORECASE)
"""Names of the entries that frameworks write: checkpoint-500, epoch=3.ckpt, model.safetensors."""
_DEPTH = 2
"""Directories in a checkpoint."""
_MOST_LOOKED_AT = 8
_MOST_NAMES = 20_000


@dataclass(frozen=True, slots=True)
class FilesMark:
    """Of a set of files: another mark means that something was written."""

    changed_ns: int = 0
    size: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    root: Path

    def has_checkpoints(self, trainjob: str) -> bool:
        """Whether it is worth a thread to look for the newest one. Does not block."""
        return has_entries(self.root / trainjob / _CHECKPOINTS)

    def choose_resumable(self, trainjob: str) -> Resumable:
        """The newest complete checkpoint. Call it in a thread: a program can fill the directory with names."""
        from trainmaster.history.checkpoints.reading import choose_resumable  # noqa: PLC0415 - not every job has some

        return choose_resumable(self.root / trainjob / _CHECKPOINTS) if trainjob else NOTHING

    def describe_newest(self, trainjob: str) -> str:
        """When the newest complete checkpoint was saved, and its name; "" if there is none. Of two such texts the
        greater is the newer checkpoint. Blocks."""
        name = self.choose_resumable(trainjob).name
        if not name:
            return ""
        try:
            saved = checkpoint.read_commit_time(self.root / trainjob / _CHECKPOINTS / name)
        except OSError:
            return ""  # removed in this moment
        return f"{format_micro_time(datetime.fromtimestamp(saved, UTC))} {name}"

    def mark_checkpoints(self, trainjob: str) -> FilesMark:
        """Of its checkpoints, wherever they are: in their directory, or in the outputs under a usual name. Of very many
        only some are looked at. Call it in a thread."""
        folder = self.root / trainjob
        outputs = [path for path in _scan(folder / _OUTPUTS) if _CHECKPOINT_NAME.search(os.path.basename(path))]
        found = _list_newest([*_scan(folder / _CHECKPOINTS), *outputs])
        for _ in range(_DEPTH):
            found = _list_newest([entry for path in found for entry in (_scan(path) or [path])])
        return _mark(found)

    def add_directories(
        self, pod: Pod, trainjob: str, spec: ContainerSpec, level: str, newest: Resumable = NOTHING
    ) -> ContainerSpec:
        """The spec with the directories of that TrainJob (a uid); unchanged for Pods without one (""). `newest`: the
        result of `choose_resumable`."""
        place = find_place(pod.raw)
        if place is None or not trainjob:
            return spec
        folder = self.root / trainjob
        checkpoints, outputs = folder / _CHECKPOINTS, folder / _OUTPUTS
        for path in (checkpoints, outputs):
            path.mkdir(parents=True, exist_ok=True)
            # Ranks may run as other users than the server; the directories above keep others out.
            path.chmod(0o777)
        chosen = self._choose(folder, newest.name, place, pod.uid, spec.attempt)
        seen = (str(checkpoints), str(outputs)) if level == PLAIN else (f"{INSIDE}/checkpoints", f"{INSIDE}/outputs")
        given = {
            checkpoint.DIRECTORY: seen[0],
            OUTPUT: seen[1],
            checkpoint.RESUME_FROM: f"{seen[0]}/{chosen}" if chosen else "",
            checkpoint.ATTEMPT: str(place.attempt),
        }
        mounts = () if level == PLAIN else (Mount(seen[0], str(checkpoints)), Mount(seen[1], str(outputs)))
        return replace(spec, env={**given, **spec.env}, mounts=(*spec.mounts, *mounts))

    def _choose(self, folder: Path, name: str, place: PodPlace, uid: str, restart: int) -> str:
        if restart:
            # Only the container was restarted in place: nobody else has to agree.
            return name
        from trainmaster.history.checkpoints.notes import (  # noqa: PLC0415 - for the first Pod, not for the start
            RESUMED,
            ResumeNote,
            find_resume_note,
            write_resume_note,
        )

        path = folder / f"{RESUMED}{place.jobset}.{place.attempt}"
        note, seat = find_resume_note(path), f"{place.job}-{place.job_index}-{place.index}"
        if note is None or note.seats.get(seat, uid) != uid:
            note = ResumeNote(name, {}, None if note is None else note.began)
        if seat not in note.seats:
            note = replace(note, seats={**note.seats, seat: uid})
            write_resume_note(path, note)
        return note.checkpoint


def has_entries(folder: Path) -> bool:
    """Does not read more than the first one."""
    try:
        with os.scandir(folder) as scan:
            return any(True for _ in scan)
    except OSError:
        return False


def describe_passed_over(newest: Resumable) -> str:
    """What a person should know about the choice; "" if the newest checkpoint was whole."""
    if not newest.passed_over:
        return ""
    shown = [f"{item.name} ({item.problem})" for item in newest.passed_over[:3]]
    more = f" and {len(newest.passed_over) - 3} more" if len(newest.passed_over) > 3 else ""
    instead = f"it resumes from {newest.name} instead" if newest.name else "no other is complete, so it starts anew"
    return f"damaged checkpoints are passed over: {', '.join(shown)}{more}; {instead}"


def _scan(folder: str | os.PathLike[str]) -> list[str]:
    """The paths of its entries; empty if it is no directory. Links are not followed."""
    try:
        if os.path.islink(folder):
            return []
        with os.scandir(folder) as scan:
            return [entry.path for entry in itertools.islice(scan, _MOST_NAMES)]
    except OSError:
        return []


def _list_newest(paths: Iterable[str]) -> list[str]:
    """Those that changed last."""
    return sorted(paths, key=lambda path: _stat(path)[0], reverse=True)[:_MOST_LOOKED_AT]


def _mark(paths: Sequence[str]) -> FilesMark:
    stats = [_stat(path) for path in paths]
    return FilesMark(max((one[0] for one in stats), default=0), sum(one[1] for one in stats), len(paths))


def _stat(path: str) -> tuple[int, int]:
    """(last change in ns, size); 0 for what is gone."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
