"""Decides which files are ignored: `.gitignore` and `.trainmasterignore`, with git's rules.

Later lines override earlier ones, files in deeper directories override those above, and `.trainmasterignore` overrides
`.gitignore` beside it. `!` includes a name again, but nothing inside an ignored directory. `ALWAYS` is ignored
regardless of these files, and so is every Python environment (a directory with a `pyvenv.cfg`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

OWN_FILE = ".trainmasterignore"
FILES = (".gitignore", OWN_FILE)
"""In order of increasing precedence."""
ALWAYS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
)
ENVIRONMENT_MARK = "pyvenv.cfg"

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    regex: re.Pattern[str]
    """Matches the whole path relative to the ignore file, or only the name."""
    negated: bool
    directories_only: bool
    whole_path: bool


@dataclass(frozen=True, slots=True)
class Level:
    """The patterns of one directory."""

    base: str
    """Path of that directory relative to the root of the walk, with a trailing slash; "" for the root. For directories
    above the root see `above`."""
    above: str
    """For an ignore file above the root: the root's path relative to that file's directory, with a trailing slash."""
    patterns: tuple[Pattern, ...]
    """Last line first: the first match decides."""

    def decide(self, path: str, name: str, is_directory: bool) -> bool | None:
        """Whether it is ignored; None if no pattern matches."""
        below = ""
        for pattern in self.patterns:
            if pattern.directories_only and not is_directory:
                continue
            if pattern.whole_path:
                below = below or f"{self.above}{path[len(self.base) :]}"
                found = pattern.regex.fullmatch(below)
            else:
                found = pattern.regex.fullmatch(name)
            if found:
                return not pattern.negated
        return None


Levels = tuple[Level, ...]
"""Deepest first."""


def is_ignored(levels: Levels, path: str, name: str, is_directory: bool) -> bool:
    for level in levels:
        decided = level.decide(path, name, is_directory)
        if decided is not None:
            return decided
    return False


def add_level(levels: Levels, directory: str, base: str, names: Iterable[str]) -> Levels:
    """Adds the ignore files among `names` of the directory."""
    present = [name for name in FILES if name in names]
    lines = [line for name in present for line in _read_lines(Path(directory, name))]
    patterns = parse(lines)
    return (Level(base, "", patterns), *levels) if patterns else levels


def read_levels_above(root: Path) -> Levels:
    """The repository's ignore files above a directory that is packed."""
    top = find_repository(root)
    if top is None:
        return ()
    found: list[Level] = []
    if exclude := parse(_read_lines(top / ".git" / "info" / "exclude")):
        found.append(Level("", _path_below(root, top), exclude))
    for folder in [folder for folder in reversed(root.parents) if folder == top or top in folder.parents]:
        if patterns := parse([line for name in FILES for line in _read_lines(folder / name)]):
            found.append(Level("", _path_below(root, folder), patterns))
    return tuple(reversed(found))


def find_repository(root: Path) -> Path | None:
    """This directory or the closest one above it that contains `.git`."""
    for folder in (root, *root.parents):
        if os.path.lexists(folder / ".git"):
            return folder
    return None


def _path_below(root: Path, folder: Path) -> str:
    below = root.relative_to(folder).as_posix()
    return "" if below == "." else f"{below}/"


def _read_lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    text = os.fsdecode(content.removeprefix(b"\xef\xbb\xbf"))
    return [line.removesuffix("\r") for line in text.split("\n")]


def parse(lines: Sequence[str]) -> tuple[Pattern, ...]:
    """Last line first."""
    found = [pattern for line in lines if (pattern := parse_line(line)) is not None]
    return tuple(reversed(found))


def parse_line(line: str) -> Pattern | None:
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    text = _trim(line[1:] if negated else line)
    if text.startswith(("\\#", "\\!")) and not negated:
        text = text[1:]
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    whole_path = "/" in text
    try:
        regex = re.compile(translate(text.removeprefix("/")), re.DOTALL)
    except _NeverMatches:
        return None
    return Pattern(regex, negated, directories_only, whole_path)


def _trim(text: str) -> str:
    """Removes trailing spaces that are not escaped."""
    end = len(text)
    while end and text[end - 1] == " ":
        backslashes = len(text[: end - 1]) - len(text[: end - 1].rstrip("\\"))
        if backslashes % 2:
            break
        end -= 1
    return text[:end]


class _NeverMatches(Exception):
    """Git considers the pattern invalid: it matches nothing."""


def translate(pattern: str) -> str:
    """A regular expression for a whole path or name."""
    out: list[str] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == "*":
            piece, place = _translate_stars(pattern, place)
            out.append(piece)
        elif char == "?":
            out.append("[^/]")
            place += 1
        elif char == "[":
            piece, place = _translate_set(pattern, place)
            out.append(piece)
        else:
            if char == "\\":
                place += 1
                if place == len(pattern):
                    raise _NeverMatches
            out.append(re.escape(pattern[place]))
            place += 1
    return "".join(out)


def _translate_stars(pattern: str, place: int) -> tuple[str, int]:
    end = place
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    starts = place == 0 or pattern[place - 1] == "/"
    if end - place == 1 or not starts or "/" not in pattern:
        return "[^/]*", end
    if end == len(pattern):
        # Everything inside: at least one name.
        return ".+", end
    if pattern[end] == "/":
        return "(?:.*/)?", end + 1
    return "[^/]*", end


def _translate_set(pattern: str, place: int) -> tuple[str, int]:
    place += 1
    negated = place < len(pattern) and pattern[place] in "!^"
    place += negated
    items: list[str] = []
    first = True
    while True:
        if place >= len(pattern):
            raise _NeverMatches
        if pattern[place] == "]" and not first:
            break
        first = False
        item, place = _read_item(pattern, place)
        items.append(item)
    inside = "".join(items) or "(?!)"
    return f"(?!/)[{'^' if negated else ''}{inside}]", place + 1


def _read_item(pattern: str, place: int) -> tuple[str, int]:
    """One member of a set: a class, a range or a character."""
    if pattern.startswith("[:", place):
        end = pattern.find(":]", place)
        if end < 0 or pattern[place + 2 : end] not in _CLASSES:
            raise _NeverMatches
        return _CLASSES[pattern[place + 2 : end]], end + 2
    low, place = _read_character(pattern, place)
    if pattern.startswith("-", place) and place + 1 < len(pattern) and pattern[place + 1] != "]":
        high, place = _read_character(pattern, place + 1)
        if low > high:
            # A regular expression cannot contain an empty range; no name contains this character.
            return "\\x00", place
        return f"{_quote(low)}-{_quote(high)}", place
    return _quote(low), place


def _read_character(pattern: str, place: int) -> tuple[str, int]:
    if pattern[place] == "\\":
        place += 1
        if place >= len(pattern):
            raise _NeverMatches
    return pattern[place], place + 1


def _quote(char: str) -> str:
    return f"\\{char}" if char in "\\]^-[&~|" else char
