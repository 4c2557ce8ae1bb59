"""Keeps what rank 0 wrote into its working directory (files that its code did not contain, or that changed) and into
its home, and records what Pods wrote elsewhere (`lost_files`).

    <Pod directory>/code.json                        what to look at when the Pod has ended, written before it starts
    <results>/<TrainJob uid>/workdirs/<Pod uid>/     about.json (which job, attempt and Pod), files/ and home/
    <results>/<TrainJob uid>/lost/<Pod uid>.json     what is not kept

Called when the Pod has ended, before its end is reported, and again before its directory is removed, when the Pod may
no longer be known. Files are linked, not copied, into a temporary directory that is renamed when complete, so a crash
loses nothing and nobody finds a partial result. Results that were removed meanwhile (by history or the job's author)
stay removed. The files belong to a program: they are accessed by descriptor (`shim.trees`), and anything that is
neither a file nor a link inside the directory is skipped.
"""

from __future__ import annotations

import errno
import itertools
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
from trainmaster.history.lost_files import LostFiles, encode_lost
from trainmaster.history.results import ABOUT, FILES, HOME, LOST, WORKDIRS
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.disk.lost_files import find_lost, list_scratch, walk_scratch
from trainmaster.node.disk.results import has_entries
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import COPY, write_whole
from trainmaster.shim.sandbox import beneath
from trainmaster.shim.trees import TreeEntry, TreeWalk, copy_data, remove_tree

log = logging.getLogger(__name__)

NOTE = "code.json"
WORK = "work"
"""In a Pod's directory: its $HOME."""
DOWNLOADS = frozenset({"nltk_data", "scikit_learn_data", "tensorflow_datasets", "gensim-data", "seaborn-data"})
"""Directories in a home that libraries download data to."""
MOST_FILES = 100_000
"""Files kept per Pod; programs that write more should use an archive."""
_MOST_LEVELS, _MOST_BYTES = 100, 2000
"""Limits of a path: deeper ones can hardly be opened by name."""
_NOT_LINKED = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class FinishedPod:
    """A Pod of a TrainJob that has ended, and where it wrote."""

    directory: Path
    trainjob: str
    about: Mapping[str, Any]
    rank: int
    """Files are kept of rank 0 only."""
    view: Path | None
    """Its writable view of the code; None if it has none."""
    digest: str

    @property
    def uid(self) -> str:
        return self.directory.name

    @property
    def home(self) -> Path:
        return self.directory / WORK


@dataclass(frozen=True, slots=True)
class Outputs:
    results: Path
    bundles: Path

    def note(self, pod: Pod, trainjob: str, volumes: Mapping[str, Volume], directory: str) -> None:
        """Called before the Pod starts. Does nothing for Pods that belong to no TrainJob."""
        place = find_place(pod.raw)
        path = f"{directory}/{NOTE}"
        if place is None or not trainjob or os.path.exists(path):
            return
        content: dict[str, Any] = {
            "trainjob": trainjob,
            "about": {"job": place.job, "attempt": place.attempt, "pod": place.pod},
            "rank": place.index or place.job_index,
        }
        found = [volume for volume in volumes.values() if volume.code and not volume.read_only]
        if found:
            view, layer = found[0].source, found[0].layer
            content |= {"digest": found[0].code, "view": layer or view, "layered": bool(layer)}
        write_whole(path, orjson.dumps(content))

    def find_finished(self, directory: Path) -> FinishedPod | None:
        """What the Pod may have left; None if it wrote nothing, or everything was done before. Does not block."""
        try:
            note: dict[str, Any] = orjson.loads((directory / NOTE).read_bytes())
        except (FileNotFoundError, ValueError):  # empty after a power failure
            return None
        view = _find_view(Path(note["view"]), layered=note["layered"]) if "view" in note else None
        # Earlier versions wrote notes for rank 0 only.
        found = FinishedPod(
            directory, note["trainjob"], note["about"], note.get("rank", 0), view, note.get("digest", "")
        )
        places = (directory / WORK, view, *(place for place, _ in list_scratch(directory)))
        return found if any(place is not None and has_entries(place) for place in places) else None

    def keep(self, pod: FinishedPod) -> int:
        """Returns how many files were kept; 0 if there is nothing to keep or it was done before. Blocks. Raises OSError
        on disk errors, after which it can be retried."""
        results = self.results / pod.trainjob
        target = results / WORKDIRS / pod.uid
        if pod.rank or not results.is_dir() or target.exists():
            return 0
        partial = results / WORKDIRS / f".{pod.uid}.partial"
        remove_tree(partial)
        count = 0
        for entry, folder in itertools.chain(self._list_code(pod, FILES), list_home(pod.home, HOME)):
            if count == MOST_FILES:
                log.warning("not all files kept", extra={"action": "node.outputs_cut", "pod": pod.uid})
                break
            _keep_file(entry, partial / folder / entry.path)
            count += 1
        if count:
            write_whole(os.fspath(partial / ABOUT), orjson.dumps(pod.about))
            partial.rename(target)
        return count

    def record_lost(self, pod: FinishedPod) -> LostFiles | None:
        """Records what the Pod wrote and is not kept; None if that is nothing worth mentioning. Blocks. The last step:
        nothing is done for this Pod afterwards."""
        results = self.results / pod.trainjob
        lost = None
        if results.is_dir():
            entries = walk_scratch(list_scratch(pod.directory))
            if pod.rank:
                entries = itertools.chain(entries, self._list_code(pod, ""), list_home(pod.home, "~/"))
            lost = find_lost(pod.about["attempt"], pod.rank, entries)
        if lost is not None:
            (results / LOST).mkdir(mode=0o700, exist_ok=True)
            write_whole(os.fspath(results / LOST / f"{pod.uid}.json"), encode_lost(lost))
        (pod.directory / NOTE).unlink(missing_ok=True)
        return lost

    def _list_code(self, pod: FinishedPod, folder: str) -> Iterator[tuple[TreeEntry, str]]:
        if pod.view is not None:
            tree = BundleStore(self.bundles).get_place(pod.digest) / "tree"
            yield from ((entry, folder) for entry in list_new(pod.view, tree))


def list_home(home: Path, folder: str) -> Iterator[tuple[TreeEntry, str]]:
    """Files and links in a home, with the folder that they belong to. Names that begin with a dot are settings and
    caches of programs, and possibly credentials."""
    try:
        walk = TreeWalk(os.fspath(home))
    except OSError:
        return
    for entry in walk:
        at_top = "/" not in entry.path
        if entry.name in LEFT_OUT or (at_top and (entry.name.startswith(".") or entry.name in DOWNLOADS)):
            walk.skip()
        elif not _is_too_deep(entry.path) and _is_kept_kind(entry):
            yield entry, folder


def _is_kept_kind(entry: TreeEntry) -> bool:
    if stat.S_ISLNK(entry.status.st_mode):
        return is_inside(entry.path, os.readlink(entry.name, dir_fd=entry.directory))
    return stat.S_ISREG(entry.status.st_mode)


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
