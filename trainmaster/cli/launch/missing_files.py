"""Suggests the `--volume` that makes a file of this machine available to a program that did not find it.

It looks for the file with the rights of the user who runs the command. Only for jobs of that user: in the output of
somebody else's job, the path would be a stranger's choice.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path

from trainmaster.api.code import MOUNT_PATH
from trainmaster.cli.launch.run_options import RunOptionError, parse_volume

_ERROR = r"(?:\w+\.)*\w+: \[Errno (\d{1,3})\] [^:']+: '([^']+)'"
_LEAST_DEPTH = 2
"""Directories above are not worth mounting: / and /tmp."""


def suggest_volume(error: str, here: Path, root: Path | None) -> str:
    """A sentence; "" if no volume would help. `here`: where the command was given; `root`: the directory with the code;
    None if none was sent."""
    found = re.match(_ERROR, error)
    if found is None or not found[2].isprintable():
        return ""
    number, path = int(found[1]), found[2]
    if root is None and not path.startswith("/"):
        return ""
    place = Path(os.path.normpath((root or here) / path))
    if number == errno.ENOENT and os.path.exists(place):
        option = _build_option(path, place, here, root, ":ro")
        return f"{place} is on this machine, but the job does not see it: add `{option}`" if option else ""
    if number == errno.EROFS:
        option = _build_option(path, place, here, root, "")
        mount = f"add `{option}` to let it write there, or " if option else ""
        return f"jobs see the files of this machine read-only: {mount}write to $TRAINMASTER_OUTPUT_DIR, which is kept"
    return ""


def _build_option(path: str, place: Path, here: Path, root: Path | None, end: str) -> str:
    """The option for the nearest directory, or for the file itself if that is a top-level one or contains the code."""
    folder = next(one for one in (place, *place.parents) if os.path.isdir(one))
    for source in (folder, place):
        if len(source.parts) <= _LEAST_DEPTH or not os.path.exists(source):
            continue
        text = str(source) if path.startswith("/") else os.path.relpath(source, here)
        text = text if text.startswith(("/", ".")) else f"./{text}"
        try:
            mount = parse_volume(f"{text}{end}", here, root)
        except RunOptionError:
            continue
        inside = os.path.normpath(os.path.join(MOUNT_PATH, path))
        if mount.source == str(source.resolve()) and f"{inside}/".startswith(f"{mount.path}/"):
            return f"--volume {shlex.quote(text + end)}"
    return ""
