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

import os
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
_CHECKPOINTS = "checkpoints"
NOTHING = Resumable()


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

    def add_directories(
        self, pod: Pod, trainjob: str, spec: ContainerSpec, level: str, newest: Resumable = NOTHING
    ) -> ContainerSpec:
        """The spec with the directories of that TrainJob (a uid); unchanged for Pods without one (""). `newest`: the
        result of `choose_resumable`."""
        place = find_place(pod.raw)
        if place is None or not trainjob:
            return spec
        folder = self.root / trainjob
        checkpoints, outputs = folder / _CHECKPOINTS, folder / "outputs"
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
