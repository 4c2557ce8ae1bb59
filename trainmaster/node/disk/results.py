"""What a TrainJob leaves behind on purpose: checkpoints and outputs, one directory for all its ranks and attempts.

    <root>/<TrainJob uid>/checkpoints/         TRAINMASTER_CHECKPOINT_DIR
    <root>/<TrainJob uid>/outputs/             TRAINMASTER_OUTPUT_DIR
    <root>/<TrainJob uid>/resume.<JobSet>.<n>  which checkpoint attempt n resumes from; decided once, for all ranks

They outlive the Pods and the job; history forgets them (`history.purging`). The choice of a checkpoint is written down
by the first rank that starts: a rank that starts later, or again after a crash of the control plane, gets the same one,
even if a faster rank has saved a newer one meanwhile. A rank that finds another Pod in its own seat begins a new round
of the same attempt (the job was suspended and resumed, or a Job replaced that Pod alone), and decides anew.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from trainmaster import checkpoint
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.node.launch.containers import INSIDE
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Mount, write_whole

OUTPUT = "TRAINMASTER_OUTPUT_DIR"
_CHECKPOINTS = "checkpoints"
_MOST_NAMES = 20_000


@dataclass(frozen=True, slots=True)
class Results:
    root: Path

    def find_newest(self, trainjob: str) -> str:
        """Name of the newest complete checkpoint; "" when there is none. For a thread: the directory is a program's,
        which can fill it with names."""
        if not trainjob:
            return ""
        return find_newest_name(self.root / trainjob / _CHECKPOINTS)

    def give(self, pod: Pod, trainjob: str, spec: ContainerSpec, level: str, newest: str = "") -> ContainerSpec:
        """The spec with the directories of that TrainJob (a uid); as it is for Pods that belong to none ("").
        `newest`: what `find_newest` found."""
        place = find_place(pod.raw)
        if place is None or not trainjob:
            return spec
        folder = self.root / trainjob
        checkpoints, outputs = folder / _CHECKPOINTS, folder / "outputs"
        for path in (checkpoints, outputs):
            path.mkdir(parents=True, exist_ok=True)
            # Ranks may run under other users than the server; the directories around are closed to them.
            path.chmod(0o777)
        chosen = self._choose(folder, newest, place, pod.uid, spec.attempt)
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
            # The container alone was restarted, in place: nobody else has to agree.
            return name
        path = folder / f"resume.{place.jobset}.{place.attempt}"
        note, seat = _read_note(path), f"{place.job}-{place.job_index}-{place.index}"
        if note is None or note["seats"].get(seat, uid) != uid:
            note = {"checkpoint": name, "seats": {}}
        if seat not in note["seats"]:
            note["seats"][seat] = uid
            write_whole(os.fspath(path), orjson.dumps(note))
        return str(note["checkpoint"])


def find_newest_name(folder: Path) -> str:
    """As `checkpoint.find_newest`, among names that can stand in a variable, and not more of them than anybody has."""
    try:
        with os.scandir(folder) as scan:
            names = [entry.name for entry in itertools.islice(scan, _MOST_NAMES)]
    except OSError:
        return ""
    found = checkpoint.choose_newest(folder, [name for name in names if name.isprintable()])
    return "" if found is None else found.name


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        note: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return note
