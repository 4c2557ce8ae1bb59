"""Removal of a home, in a way that survives a crash. Used by `trainmaster purge`.

Only files that belong to a home are removed; if there are others, they and the directory stay. The owner's work
(settings, templates, volumes of claims) is removed only if `everything` is set. All files are first moved aside, the
database before the rest, so that a server started after a crash sees a new home instead of a damaged one; then they are
deleted. Nothing is removed while a server or a Pod of the home is running, or while anything is mounted below it.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trainmaster.app.home.folder import Home, HomeError, ServerInfo
from trainmaster.node.shims.pod_directory import list_live
from trainmaster.shim.trees import TreeWalk, remove_tree

STATE = {
    "store": "all objects: jobs, runtimes, namespaces, quotas",
    "pki": "the certificate authority, keys and tokens",
    "kubeconfig": "the owner's credentials",
    "pods": "working directories and logs of Pods",
    "history": "records, logs, outputs and checkpoints of jobs",
    "bundles": "code of jobs",
    "caches": "models and other files that your jobs have cached",
    "environments": "Python environments made for jobs",
    "gangs": "files shared by the Pods of a job",
    "logs": "the server's log and the audit log",
    "isolation.json": "what this machine can do",
    "reserve": "",
    "control.sock": "",
    "server.json": "",
    "port": "",
    "rest-port": "",
    "dashboard-port": "",
    "lock": "",
}
"""Name -> description for the plan; "" for files that need no mention. In the order of removal."""
YOURS = {
    "config.toml": "settings",
    "templates": "templates of the REST API",
    "volumes": "volumes of claims: data that outlives jobs",
}
ASIDE = ".purged"


@dataclass(frozen=True, slots=True)
class RemovalPart:
    name: str
    text: str
    bytes: int
    goes: bool


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    parts: tuple[RemovalPart, ...]
    foreign: tuple[str, ...]
    """Files that do not belong to a home; they are kept."""

    @property
    def is_empty(self) -> bool:
        return not any(part.goes for part in self.parts)


def make_plan(home: Home, *, everything: bool = False) -> RemovalPlan:
    """HomeError if the directory is not a home."""
    if not home.root.is_dir():
        raise HomeError(f"there is no home {home.root}")
    present = set(os.listdir(home.root))
    if not present & {"store", "lock", "pki", ASIDE}:
        raise HomeError(f"{home.root} is not a home of trainmaster: it has no store, no lock and no keys")
    parts = [
        RemovalPart(name, text, _measure(home.root / name), goes)
        for table, goes in ((STATE, True), (YOURS, everything))
        for name, text in table.items()
        if name in present
    ]
    if ASIDE in present:
        parts.append(RemovalPart(ASIDE, "what an earlier purge did not finish", _measure(home.root / ASIDE), True))
    earlier = sorted(name for name in present if name.startswith("store."))
    parts += [RemovalPart(name, "all objects before a restore", _measure(home.root / name), True) for name in earlier]
    known = {*STATE, *YOURS, ASIDE, *earlier}
    foreign = sorted(name for name in present - known if not name.startswith(".lock"))
    return RemovalPlan(tuple(parts), tuple(foreign))


def list_mounts(home: Home, table: str | None = None) -> list[str]:
    """Mount points below the home, as this process sees them."""
    text = table if table is not None else Path("/proc/self/mountinfo").read_text()
    inside = f"{home.root.resolve()}/"
    points = (line.split()[4].encode().decode("unicode_escape") for line in text.splitlines() if line)
    return [point for point in points if point.startswith(inside)]


def remove(home: Home, plan: RemovalPlan) -> None:
    """HomeError if a server or Pods are running in the home, or a file cannot be removed."""
    pods = list_live(home.pods)
    if pods:
        raise HomeError(f"{len(pods)} Pods of {home.root} are running: stop them with `trainmaster purge --stop`")
    mounts = list_mounts(home)
    if mounts:
        raise HomeError(f"{mounts[0]} is a mount below the home: unmount it first (umount {mounts[0]})")
    aside = home.root / ASIDE
    # Also remove state that is newer than the plan: taking the lock creates the usual directories.
    going = dict.fromkeys((*STATE, *(part.name for part in plan.parts if part.goes)))
    # The lock is held so that no server can start meanwhile; its file is removed last.
    with home.hold(ServerInfo(os.getpid(), "", str(home.root))):
        try:
            aside.mkdir(mode=0o700, exist_ok=True)
            for name in going:
                if name not in ("lock", "server.json", ASIDE):
                    _move(home.root / name, aside)
            if not remove_tree(aside):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(aside))
        except OSError as error:
            text = f"{error.filename or home.root} cannot be removed: {error.strerror}"
            raise HomeError(f"{text}: is it another user's? Do it as root; what is left lies in {aside}") from None
        (home.root / "lock").unlink(missing_ok=True)
    if not any(home.root.iterdir()):
        home.root.rmdir()


def _move(path: Path, aside: Path) -> None:
    target = aside / path.name
    number = 0
    while target.exists() or target.is_symlink():  # left by an interrupted purge
        number += 1
        target = aside / f"{path.name}.{number}"
    if path.exists() or path.is_symlink():
        path.rename(target)


def _measure(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(entry.status.st_size for entry in TreeWalk(str(path)) if not stat.S_ISDIR(entry.status.st_mode))
