"""Run in a Pod's sandbox with the interpreter of a new environment: installs packages and adapts its scripts.

It runs with the Pod's rights, and so does any code of the packages. Imports nothing of ours: any Python from 3.8 on may
run it. Started as `python -I install_program.py <JSON>`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys

_TRAMPOLINE = re.compile(rb"^'''exec' .*$", re.MULTILINE)
_LARGEST = 1 << 20


def loosen(folder: str) -> None:
    """Makes scripts use the interpreter in PATH, which also sees what a Pod installs for itself."""
    for entry in list(os.scandir(folder)):
        if not entry.is_file(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_size > _LARGEST:
            continue
        with open(entry.path, "rb") as stream:
            first, _, rest = stream.read().partition(b"\n")
        named = first[2:].split()
        if not first.startswith(b"#!") or not named:
            continue
        if b"python" in os.path.basename(named[0]) and os.path.dirname(os.fsdecode(named[0])) == folder:
            text = b"#!/usr/bin/env python3\n" + rest
        elif first.startswith(b"#!/bin/sh") and _TRAMPOLINE.match(rest):
            # Installers write this if the interpreter's path is too long for a shebang.
            text = first + b"\n" + _TRAMPOLINE.sub(b"'''exec' python3 \"$0\" \"$@\"", rest, count=1)
        else:
            continue
        if entry.name in ("pip", "pip3"):
            # It must write to the Pod's own layer.
            text = b'#!/bin/sh\nexec python3 -m pip "$@"\n'
        mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
        with open(f"{entry.path}.new", "wb") as stream:
            stream.write(text)
        os.chmod(f"{entry.path}.new", mode)
        os.rename(f"{entry.path}.new", entry.path)


def main(text: str) -> int:
    asked = json.loads(text)
    if asked["pip"]:
        sys.path.insert(0, asked["pip"])
    from pip._internal.cli.main import main as pip  # noqa: PLC0415

    common = ["--progress-bar=off", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    for step in asked["steps"]:
        code = pip(["install", "--root-user-action=ignore", "--no-warn-script-location", *common, *step])
        if code:
            return code
    loosen(asked["programs"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
