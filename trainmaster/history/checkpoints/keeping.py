"""Decides which checkpoints of a job are kept, and removes the others.

Only those in the checkpoint directory are ever removed: a file in the outputs may be the result of the job. A removal
that is interrupted leaves no half checkpoint: it is renamed first, to a name that nobody takes for one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainmaster.history.checkpoints.grouping import MARKER
from trainmaster.history.checkpoints.model import Checkpoint, Policy, Reason
from trainmaster.kit import failpoints
from trainmaster.shim.sandbox import beneath
from trainmaster.shim.trees import remove_tree

REMOVED = ".trainmaster-removed-"
"""Prefix of what is being removed."""


def explain_kept(items: Sequence[Checkpoint], policy: Policy, resumed: str) -> list[Checkpoint]:
    """The same checkpoints with the reasons why they are kept. `items`: the newest first. `resumed`: the name of the
    one that the last attempt resumed from."""
    own = [item for item in items if item.place == "checkpoints"]
    complete = [item for item in own if item.complete]
    newest = {item.name for item in (*complete[:1], *[item for item in own if item.is_resumable][:1])}
    last = {item.name for item in complete[: policy.last]}
    explained = []
    for item in items:
        kept: list[Reason] = []
        if item.name in newest:
            kept.append("newest")
        if item.place == "checkpoints" and item.source.path == resumed:
            kept.append("resumed")
        if item.pinned:
            kept.append("pinned")
        if item.name in last:
            kept.append("last")
        if policy.every and item.complete and item.step is not None and item.step % policy.every == 0:
            kept.append("every")
        explained.append(replace(item, kept=tuple(kept)))
    return explained


def decide_removals(explained: Sequence[Checkpoint], policy: Policy, *, incomplete: bool = False) -> list[Checkpoint]:
    """Which of them the policy does not keep. `incomplete`: also those that are not complete and older than a complete
    one, so that none is removed that is being written."""
    if not policy.is_given and not incomplete:
        return []
    own = [item for item in explained if item.place == "checkpoints"]
    newest = max((item.modified for item in own if item.complete), default=0.0)
    removed = []
    for item in own:
        if item.kept:
            continue
        is_old = item.modified < newest
        if (item.complete and policy.is_given) or (not item.complete and incomplete and is_old):
            removed.append(item)
    return removed


def remove(item: Checkpoint) -> bool:
    """Whether it is gone. Blocks."""
    root = os.fspath(item.source.root)
    folder, _, name = item.source.path.rpartition("/")
    aside = f"{REMOVED}{hashlib.sha256(os.fsencode(item.source.path)).hexdigest()[:16]}"
    sweep(item.source.root)
    try:
        top = beneath.open_directory(root)
    except OSError:
        return False
    try:
        parent = beneath.open_beneath(top, folder or ".")
        try:
            if item.source.is_file:
                # Without its marker it is no complete checkpoint any more.
                with suppress(FileNotFoundError):
                    os.unlink(f"{name}{MARKER}", dir_fd=parent)
                failpoints.hit("checkpoints.unmarked")
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=top)
        finally:
            os.close(parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(top)
    failpoints.hit("checkpoints.renamed")
    return _drop(item.source.root, aside)


def sweep(root: Path) -> None:
    """Removes what an interrupted removal has left. Blocks."""
    with suppress(OSError), os.scandir(root) as found:
        for name in [entry.name for entry in found if entry.name.startswith(REMOVED)]:
            _drop(root, name)


def _drop(root: Path, name: str) -> bool:
    """Nobody else can change the path of the root, and a link in it is not followed."""
    try:
        os.unlink(root / name)
        return True
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        return remove_tree(root / name)
    except OSError:
        return False
