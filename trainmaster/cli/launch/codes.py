"""The code of a run: packed into the bundles of the home, and what the job's manifest says about it."""

from __future__ import annotations

import argparse
import errno
from pathlib import Path

from trainmaster.api.code import build_annotations
from trainmaster.app.home import Home
from trainmaster.bundles import BundleError, Limits, pack
from trainmaster.cli import exits
from trainmaster.cli.code import parse_size
from trainmaster.cli.launch.manifests import Code
from trainmaster.cli.launch.wishes import WishError


def send(directory: Path, home: Home, limit: str = "1Gi") -> Code:
    """Failure in one sentence when it is too much, cannot be read, or the disk is full."""
    try:
        most_bytes = parse_size(limit)
    except argparse.ArgumentTypeError as error:
        raise WishError(f"--code-limit: {error}") from None
    try:
        home.prepare()
        bundle = pack(directory, home.bundles, Limits(bytes=most_bytes))
    except BundleError as error:
        text = str(error)
        if not isinstance(error.__cause__, OSError):
            text += "; or send none with --no-code"
        elif error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
            text += "; free some space, or choose another home with --home"
        raise exits.Failure(text, exits.RUN_CODE) from None
    return Code(bundle.digest, build_annotations(bundle.digest, bundle.git_commit, bundle.git_dirty))
