"""Keeps what rank 0 wrote into its working directory: files that its code did not contain, or that changed.

    <Pod directory>/code.json                        what to look at when the Pod has ended, written before it starts
    <results>/<TrainJob uid>/workdirs/<Pod uid>/     about.json (which job, attempt and Pod) and files/

Called when the Pod has ended, before its end is reported, and again before its directory is removed, when the Pod may
no longer be known. Files are linked, not copied, into a temporary directory that is renamed when complete, so a crash
loses nothing and nobody finds a partial result. Results that were removed meanwhile (by history or the job's author)
stay removed. The files belong to a program: they are accessed by descriptor (`shim.trees`), and anything that is
neither a file nor a link inside the directory is skipped.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from trainmaster.bundles.store import BundleStore
from trainmaster.bundles.views import LEFT_OUT, is_inside, is_same_file, is_same_link
from trainmaster.history.results import ABOUT, FILES, WORKDIRS
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import write_whole
from trainmaster.shim.sandbox import beneath
from trainmaster.shim.sandbox.rootfs import COPY
from trainmaster.shim.trees import TreeEntry, TreeWalk, copy_data, remove_tree

log = logging.getLogger(__name__)

NOTE = "code.json"
MOST_FILES = 100_000
"""Files kept per Pod; programs that write more should use an archive."""
_MOST_LEVELS, _MOST_BYTES = 100, 2000
"""Limits of a path: deeper ones can hardly be opened by name."""
_NOT_LINKED = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class Outputs:
    results: Path
    bundles: Path

    def note(self, pod: Pod, trainjob: str, volumes: Mapping[str, Volume], directory: str) -> None:
        """Called before the Pod starts. Does nothing for ranks other than 0 and Pods without code of their own."""
        place = find_place(pod.raw)
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
        """Returns how many files were kept; 0 if there is nothing to do or it was done before. Blocks. Raises OSError
        on disk errors, after which it can be retried."""
        try:
            note: dict[str, Any] = orjson.loads((directory / NOTE).read_bytes())
        except FileNotFoundError:
            return 0
        home = self.results / note["trainjob"]
        target = home / WORKDIRS / directory.name
        view = _find_view(Path(note["view"]), layered=note["layered"])
        if not home.is_dir() or target.exists() or view is None:
            return 0
        tree = BundleStore(self.bundles).get_place(note["digest"]) / "tree"
        partial = home / WORKDIRS / f".{directory.name}.partial"
        remove_tree(partial)
        count = 0
        for entry in list_new(view, tree):
            if count == MOST_FILES:
                log.warning("not all files kept", extra={"action": "node.outputs_cut", "pod": directory.name})
                break
            _keep_file(entry, partial / FILES / entry.path)
            count += 1
        if count:
            write_whole(os.fspath(partial / ABOUT), orjson.dumps(note["about"]))
            partial.rename(target)
        return count


def list_new(view: Path, tree: Path) -> Iterator[TreeEntry]:
    """Files and links in the view that the bundle lacks or has in another version."""
    walk = TreeWalk(os.fspath(view))
    for entry in walk:
        if entry.name in LEFT_OUT:
            walk.skip()
        elif _is_too_deep(entry.path):
            continue
        elif stat.S_ISLNK(entry.status.st_mode):
            link = os.readlink(entry.name, dir_fd=entry.directory)
            if not is_same_link(link, tree / entry.path) and is_inside(entry.path, link):
                yield entry
        elif stat.S_ISREG(entry.status.st_mode) and not is_same_file(entry.status, tree / entry.path):
            yield entry


def _is_too_deep(path: str) -> bool:
    return path.count("/") > _MOST_LEVELS or len(os.fsencode(path)) > _MOST_BYTES


def _find_view(place: Path, *, layered: bool) -> Path | None:
    """The directory with the files; None if the Pod never got that far."""
    places = (place / COPY, place / "upper") if layered else (place,)
    return next((found for found in places if found.is_dir()), None)


def _keep_file(entry: TreeEntry, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(entry.name, target, src_dir_fd=entry.directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_LINKED:
            raise
        if stat.S_ISLNK(entry.status.st_mode):
            os.symlink(os.readlink(entry.name, dir_fd=entry.directory), target)
        else:
            _copy_file(entry, target)


def _copy_file(entry: TreeEntry, target: Path) -> None:
    source = beneath.open_file(entry.directory, entry.name)
    try:
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copy_data(source, copy)
            status = os.fstat(source)
            os.fchmod(copy, stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(copy)
    finally:
        os.close(source)
