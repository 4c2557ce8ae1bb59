"""Packs the code of a run: into a bundle of the home, or for a cluster into a ConfigMap of the job."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import tempfile
from pathlib import Path, PurePosixPath

from trainmaster.api.code import MOUNT_PATH, build_annotations, build_volume
from trainmaster.app.home.folder import Home
from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.ignoring import OWN_FILE
from trainmaster.bundles.packing import Bundle, BundleLimits, pack
from trainmaster.bundles.store import BundleStore
from trainmaster.cli import exits
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.cli.spans import parse_size
from trainmaster.jobs.compose.request import MountedCode


def send(directory: Path, home: Home, limit: str = "1Gi", script: str = "") -> MountedCode:
    """Failure if the code is too large or cannot be read, if the disk is full, or if the script is not among the packed
    files."""
    limits = BundleLimits(bytes=_parse_limit(limit))
    try:
        home.prepare()
        bundle = _pack(directory, home.bundles, limits, home, script)
    except BundleError as error:
        raise _explain(error, "choose another home with --home") from None
    notes = build_annotations(bundle.digest, bundle.git_commit, bundle.git_dirty)
    return MountedCode(build_volume(bundle.digest), MOUNT_PATH, annotations=notes)


def carry(
    directory: Path, home: Home, job: str, namespace: str, suffix: str = "", limit: str = "1Gi", script: str = ""
) -> MountedCode:
    """The same for a cluster, with nothing left on this machine. `home` is left out of the code, as above; `suffix`: of
    the ConfigMap, default: from the content."""
    # Imported here because only runs on a cluster need them.
    from trainmaster.bundles.archives import UNPACKED_BYTES, build_archive
    from trainmaster.jobs.compose import carried

    limits = BundleLimits(bytes=_parse_limit(limit))
    if limits.bytes > UNPACKED_BYTES:
        limits = BundleLimits(bytes=UNPACKED_BYTES, bytes_by="for a cluster")
    try:
        with tempfile.TemporaryDirectory(prefix="trainmaster-") as place:
            store = Path(place) / "bundles"
            bundle = _pack(directory, store, limits, home, script)
            archive = build_archive(BundleStore(store).get_place(bundle.digest) / "tree", directory)
    except BundleError as error:
        raise _explain(error, "choose another place with TMPDIR") from None
    notes = build_annotations(bundle.digest, bundle.git_commit, bundle.git_dirty)
    name = f"{job}-code-{suffix or bundle.digest.rpartition(':')[2][:10]}"
    return carried.carry(archive, name, job, namespace, notes)


def _parse_limit(limit: str) -> int:
    try:
        return parse_size(limit)
    except argparse.ArgumentTypeError as error:
        raise RunOptionError(f"--code-limit: {error}") from None


def _pack(directory: Path, bundles: Path, limits: BundleLimits, home: Home, script: str) -> Bundle:
    bundle = pack(directory, bundles, limits, home.root)
    stored = BundleStore(bundles).find(bundle.digest)
    if script and stored is not None and (missing := _find_missing(stored.tree, script)):
        raise exits.Failure(_explain_left_out(directory, script, missing), exits.RUN_CODE)
    return bundle


def _explain(error: BundleError, elsewhere: str) -> exits.Failure:
    text = str(error)
    if not isinstance(error.__cause__, OSError):
        text += "; or send none with --no-code" if "--no-code" not in text else ""
    elif error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
        text += f"; free some space, or {elsewhere}"
    return exits.Failure(text, exits.RUN_CODE)


def _find_missing(tree: Path, script: str) -> str:
    """The script, or its topmost parent directory, that is not in the tree; "" if all exist."""
    path = PurePosixPath(script)
    above = [f"{parent}/" for parent in reversed(path.parents) if parent.name]
    return next((name for name in (*above, script) if not os.path.lexists(tree / name)), "")


def _explain_left_out(directory: Path, script: str, missing: str) -> str:
    """Explains why the script was not packed. Otherwise the failure would only appear in the job."""
    if not os.path.lexists(directory / script):
        return f"the script {directory / script} was removed while the code was packed: put it back, and try again"
    what = "it" if missing == script else missing
    rule, file = shlex.quote(f"!/{missing}"), shlex.quote(str(directory / OWN_FILE))
    return (
        f"the script {script} would not be sent: an ignore file leaves {what} out; take it back with "
        f"`echo {rule} >> {file}`, or move the script"
    )
