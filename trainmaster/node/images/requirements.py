"""Splits requirements into those from the index and those that name a location. Pure except for paths.

Only the latter can be on this machine. They are reserved for the owner: tenants may only name packages of the index.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.api.formats import packages

_FILE_URL = re.compile(r"^(?:[^@/]*@ *)?file:(?://(?:localhost)?)?(?P<path>/[^#;]*)")
_EXTRAS = re.compile(r"\[[^\]]*\]$")


@dataclass(frozen=True, slots=True)
class Split:
    plain: tuple[str, ...]
    direct: tuple[str, ...]
    """Absolute paths and URLs."""


def split_requirements(asked: Sequence[str]) -> Split:
    plain = tuple(entry for entry in asked if packages.is_plain(entry))
    return Split(plain, tuple(_make_absolute(entry) for entry in asked if entry not in plain))


def _make_absolute(entry: str) -> str:
    """A relative path is relative to the server's working directory, which an errand does not have."""
    if "://" in entry or "@" in entry or os.path.isabs(entry):
        return entry
    return os.path.abspath(entry) if entry.startswith(".") or "/" in entry or os.path.exists(entry) else entry


def list_direct_paths(direct: Iterable[str]) -> list[str]:
    """The files and directories of this machine that these requirements name."""
    found = []
    for entry in direct:
        match = _FILE_URL.match(entry)
        if match is not None:
            found.append(os.path.normpath(urllib.parse.unquote(match["path"].strip())))
        elif os.path.isabs(entry):
            found.append(os.path.normpath(_EXTRAS.sub("", entry.strip())))
    return found
