"""Parses and checks requirements in the annotation `trainmaster.dev/packages`. Pure.

Requirements are separated by commas, and may contain commas: `numpy>=1,<2`, `torch[a,b]`. A comma is a separator only
outside of brackets and before a character that can begin a name.

`find_problem` reports what tenants may not use: everything that an installer would not take for a package of the index
(a path, a URL, an option), because it may be the tenant's own code. The grammar is a subset of PEP 508, matched in
linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"\s*[A-Za-z0-9./-]")
_VERSION = r"(?:===?|[<>!~]=|[<>]) ?[A-Za-z0-9.*+!_-]{1,100} ?"
_PLAIN = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])? ?"
    r"(?:\[[A-Za-z0-9._, -]{0,200}\] ?)?"
    rf"(?:{_VERSION}(?:, ?{_VERSION}){{0,20}})?"
)
_MARKED = re.compile(r"[^;]*;[A-Za-z0-9_.'\"<>=!~(),+* -]{1,300}")
_ARCHIVES = (".whl", ".zip", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".tlz", ".lz", ".lzma", ".tar", ".egg")
"""Suffixes that make an installer treat a name as a file."""
MOST = 100
"""Maximum number of requirements in one annotation."""
WANTED = "write NAME, NAME==VERSION or NAME[EXTRA]>=VERSION"


def split(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        found += [entry.strip() for entry in _split_line(line) if entry.strip()]
    return found


def _split_line(line: str) -> list[str]:
    if ";" in line and line.partition(";")[0].count(",") == 0:
        # An environment marker, which is quoted text, after a single requirement.
        return [line]
    parts, depth, begin = [], 0, 0
    for place, char in enumerate(line):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth <= 0 and _NAME.match(line, place + 1):
            parts.append(line[begin:place])
            begin = place + 1
    return [*parts, line[begin:]]


def join(requirements: Iterable[str]) -> str:
    """One per line, so that they can always be split again."""
    return "\n".join(requirements)


def find_problem(requirement: str) -> str:
    """Why it is not a package name with optional versions; "" if it is."""
    text = requirement.strip()
    if text.startswith("-"):
        return f"is an option; {WANTED}"
    if "://" in text or "@" in text or re.match(r"(?:git|hg|svn|bzr)\+", text):
        return f"is a URL, and only packages of the index are installed here; {WANTED}"
    if "/" in text or "\\" in text or text.startswith((".", "~")) or _name_of(text).lower().endswith(_ARCHIVES):
        return f"is a path, and only packages of the index are installed here; {WANTED}"
    if ";" in text:
        return f"has an environment marker: leave it out; {WANTED}"
    return "" if _PLAIN.fullmatch(text) else f"is no requirement; {WANTED}"


def _name_of(text: str) -> str:
    return re.split(r"[\[<>=!~; ]", text, maxsplit=1)[0]


def is_plain(requirement: str) -> bool:
    """Whether it is installed from the index; a marker does not change that."""
    name, marker, _ = requirement.strip().partition(";")
    return not find_problem(name) and (not marker or _MARKED.fullmatch(requirement.strip()) is not None)


def list_problems(text: str) -> list[tuple[str, str]]:
    """(requirement, problem) for every forbidden requirement."""
    asked = split(text)
    if len(asked) > MOST:
        return [(f"{len(asked)} requirements", f"are more than the {MOST} that one environment may name")]
    return [(entry[:200], problem) for entry in asked if (problem := find_problem(entry))]
