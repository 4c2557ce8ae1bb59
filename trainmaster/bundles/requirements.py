"""Reads a requirements file into the list of requirements of a job (`trainmaster run --requirements`).

Included files (`-r`) are read too. Options that choose package sources belong to the machine that installs, and paths
refer to directories that the job does not have; both are refused with advice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainmaster.bundles.errors import BundleError

_COMMENT = re.compile(r"(^|\s)#.*")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(\S.*)")
_ADVICE = (
    (re.compile(r"-c|--constraint"), "write the versions into the requirements themselves"),
    (re.compile(r"-e|--editable"), "the code of the job is sent anyway: take the line out"),
    (
        re.compile(r"-i|--(extra-)?index-url|--pre$|--find-links|-f|--no-index|--trusted-host"),
        "set PIP_INDEX_URL and the like where the server is started, and take the line out",
    ),
)
_HASH = re.compile(r"\s--hash[=\s]")
_DEPTH = 10


def read_requirements(path: Path) -> list[str]:
    """In the order of the file, without duplicates. BundleError names the file and line of what is not supported."""
    return list(dict.fromkeys(_read(path, ())))


def _read(path: Path, above: tuple[Path, ...]) -> Iterator[str]:
    place = Path(os.path.realpath(path))
    if place in above or len(above) > _DEPTH:
        raise BundleError(f"{path} includes itself: take that -r line out")
    try:
        text = path.read_text()
    except OSError as error:
        named = f", which {above[-1]} includes," if above else ""
        raise BundleError(f"requirements file {path}{named} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BundleError(f"requirements file {path} is not text in UTF-8") from None
    for number, line in _list_lines(text):
        if match := _INCLUDE.fullmatch(line):
            yield from _read(path.parent / match[1].strip(), (*above, place))
        else:
            yield _check(line, f"{path}:{number}")


def _list_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines, which a trailing backslash continues, with the number of their first line."""
    held, begin = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        begin = begin if held else number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            held += raw[:-1]
            continue
        line = _COMMENT.sub("", held + raw).strip()
        held = ""
        if line:
            yield begin, line


def _check(line: str, where: str) -> str:
    if line.startswith("-"):
        advice = next((text for pattern, text in _ADVICE if pattern.match(line)), "take the line out")
        raise BundleError(f"{where}: {line!r} is an option of pip, not a requirement: {advice}")
    if _HASH.search(f" {line}"):
        raise BundleError(f"{where}: hashes cannot be given: name the version alone")
    if line.startswith((".", "/", "~", "file:")) or (line.endswith((".whl", ".tar.gz")) and "://" not in line):
        raise BundleError(f"{where}: {line!r} is a path of this machine: put the package into the code of the job")
    return line
