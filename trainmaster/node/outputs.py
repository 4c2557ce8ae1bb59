"""Keeps what rank 0 wrote into its working directory: the files that its code did not have, or had otherwise.

    <Pod directory>/code.json                        what to look at when the Pod has ended, written before it starts
    <results>/<TrainJob uid>/workdirs/<Pod uid>/     about.json (which job, attempt and Pod) and files/

Called when the Pod is over, before its end is reported, and once more before its directory goes: whoever removes it may
not know the Pod any more. Files are linked, not copied, into a directory of another name, which is renamed when it is
whole; so a crash anywhere loses nothing, and nobody finds half of it. Results that were removed meanwhile (history, or
the job's author) stay removed.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from trainmaster.api.meta import Object
from trainmaster.api.places import find_place
from trainmaster.bundles.store import Store
from trainmaster.bundles.views import list_new
from trainmaster.history.results import ABOUT, FILES, WORKDIRS
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import write_whole
from trainmaster.shim.rootfs import COPY

NOTE = "code.json"
_NOT_LINKED = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class Outputs:
    results: Path
    bundles: Path

    def note(self, pod: Object, trainjob: str, volumes: Mapping[str, Volume], directory: str) -> None:
        """Before the Pod starts. Nothing for ranks other than the first, and for Pods without code of their own."""
        place = find_place(pod)
        found = [volume for volume in volumes.values() if volume.code and not volume.read_only]
        path = f"{directory}/{NOTE}"
        if place is None or not trainjob or place.index or place.job_index or not found or os.path.exists(path):
            return
        content = {
            "trainjob": trainjob,
            "digest": found[0].code,
            "view": found[0].layer or found[0].source,
            "layered": bool(found[0].layer),
            "about": {"job": place.job, "attempt": place.attempt, "pod": place.pod},
        }
        write_whole(path, orjson.dumps(content))

    def has_note(self, directory: Path) -> bool:
        return (directory / NOTE).exists()

    def keep(self, directory: Path) -> int:
        """How many files are kept; 0 when there is nothing to do, or it was done before. Blocking; OSError when the
        disk refuses, and then it can be tried again."""
        try:
            note: dict[str, Any] = orjson.loads((directory / NOTE).read_bytes())
        except FileNotFoundError:
            return 0
        home = self.results / note["trainjob"]
        target = home / WORKDIRS / directory.name
        view = _find_view(Path(note["view"]), layered=note["layered"])
        if not home.is_dir() or target.exists() or view is None:
            return 0
        found = list(list_new(view, Store(self.bundles).get_place(note["digest"]) / "tree"))
        if not found:
            return 0
        partial = home / WORKDIRS / f".{directory.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for path, _ in found:
            _keep_file(view / path, partial / FILES / path)
        write_whole(os.fspath(partial / ABOUT), orjson.dumps(note["about"]))
        partial.rename(target)
        return len(found)


def _find_view(place: Path, *, layered: bool) -> Path | None:
    """Where the files are; None when the Pod never came so far."""
    places = (place / COPY, place / "upper") if layered else (place,)
    return next((found for found in places if found.is_dir()), None)


def _keep_file(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_LINKED:
            raise
        shutil.copy2(source, target, follow_symlinks=False)
