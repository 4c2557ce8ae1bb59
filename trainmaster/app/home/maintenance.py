"""Backup and restore of a home's objects, for the command line.

A running server copies its own store (on request through the control socket); otherwise the store is opened here, with
the home's lock held so that no server starts meanwhile. A restore keeps the previous store under another name.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from trainmaster.api.resources import PODS
from trainmaster.apiserver import stored
from trainmaster.app.home.control import ControlError, ask
from trainmaster.app.home.folder import AlreadyRunning, Home, HomeError, ServerInfo
from trainmaster.history.restores import note_restore
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.node.shims.pod_directory import list_live, read_found
from trainmaster.shim.protocol import Paths
from trainmaster.store import backup as copies
from trainmaster.store.contract import StoreError
from trainmaster.store.database import sync_directory
from trainmaster.store.sqlite import SqliteStore
from trainmaster.version import __version__

DRAFT = "store.restoring"
"""The store that a restore builds before it replaces the current one."""
_BACKUP_SECONDS = 3600.0


def backup(home: Home, path: Path) -> int:
    """Writes all objects to a new file; returns a revision that it contains for certain. HomeError if that fails."""
    try:
        if home.find_running() is not None:
            request = {"operation": "backup", "path": str(path)}
            return int(ask(home.root, request, timeout=_BACKUP_SECONDS)["revision"])
        if not home.store.exists():
            raise HomeError(f"there is nothing to back up in {home.root}: choose a home with --home")
        with home.hold(_this_process(home)):
            return asyncio.run(_backup_closed(home, path))
    except (StoreError, ControlError) as error:
        raise HomeError(str(error)) from error
    except OSError as error:
        raise HomeError(f"the backup {path} cannot be written: {error.strerror}") from error


async def _backup_closed(home: Home, path: Path) -> int:
    async with SqliteStore.open(home.store, SystemClock()) as store:
        return await copies.backup(store, path)


def list_ending(home: Home, path: Path) -> dict[str, str]:
    """The running Pods that a backup does not contain, as uid -> namespace/name: the next server would end them."""
    if (running := home.find_running()) is not None:
        raise AlreadyRunning(running)
    try:
        kept = {stored.peek_uid(value) for value in copies.read_bucket(path, PODS.collection)}
    except StoreError as error:
        raise HomeError(str(error)) from error
    found = (read_found(Paths(f"{home.pods}/{uid}"), alive=True) for uid in list_live(home.pods) if uid not in kept)
    return {one.uid: f"{one.pod.namespace}/{one.pod.name}" if one.pod else one.uid for one in found}


def restore(home: Home, path: Path, keep: Collection[str] = ()) -> tuple[int, Path | None]:
    """Replaces the store with a backup; returns the first revision, and the path of the previous store. `keep`: uids of
    running Pods whose jobs are kept as they are. HomeError, and nothing has changed, if that fails."""
    with home.hold(_this_process(home)):
        draft = home.root / DRAFT
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            revision = copies.restore(path, draft, above=copies.find_newest_revision(home.store) or 0)
            if keep:
                asyncio.run(_carry_over(home.store, draft, keep))
        except (StoreError, OSError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise HomeError(str(error)) from error
        note_restore(home.history, format_time(SystemClock().now()), path.name)
        aside = _set_aside(home)
        if home.store.exists():
            home.store.rmdir()
        draft.rename(home.store)
        sync_directory(home.root)
        return revision, aside


async def _carry_over(current: Path, draft: Path, pods: Collection[str]) -> None:
    from trainmaster.app.home.carry_over import carry_over  # noqa: PLC0415  # a start does not need it

    clock = SystemClock()
    async with SqliteStore.open(current, clock) as old, SqliteStore.open(draft, clock) as new:
        carry_over(old, new, pods)
        await new.durable(new.revision)


def _set_aside(home: Home) -> Path | None:
    if not home.store.exists() or not any(home.store.iterdir()):
        return None
    number = 1
    while (aside := home.root / f"store.replaced-{number}").exists():
        number += 1
    home.store.rename(aside)
    return aside


def _this_process(home: Home) -> ServerInfo:
    return ServerInfo(os.getpid(), __version__, str(home.root))
