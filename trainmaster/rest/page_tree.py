"""The files of the dashboard, as they are served: under the hash of the whole tree, to be cached for ever.

`ui/` leads to the tree by its hash and is not cached itself, so a new version is a new address, and a page never mixes
files of two versions. Every address is relative, so any prefix of a proxy works. `rest.routes.ui` serves what is here.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

INDEX = "index.html"
_ENTRY = "main.js"
_TREE, _PRELOAD = b"{{tree}}", b"{{preload}}"
_OTHER_TYPE = "application/octet-stream"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".LICENSE": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_PACKED = frozenset({".png", ".ico", ".woff2"})
"""Compressed already."""
_IMPORT = re.compile(rb"""^\s*(?:import|export)\b[^'"();]*["'](\.{1,2}/[^"']+)["']""", re.MULTILINE)


@dataclass(slots=True)
class PageFile:
    content: bytes
    media_type: str
    is_packed: bool = False
    _compressed: bytes = field(default=b"", init=False)

    @property
    def compressed(self) -> bytes:
        """With gzip, at the first request for it; empty if that gains nothing."""
        if not self._compressed and not self.is_packed:
            self._compressed = gzip.compress(self.content, mtime=0)
        return self._compressed


@dataclass(frozen=True, slots=True)
class PageTree:
    hash: str
    index: PageFile
    files: Mapping[str, PageFile]
    """By path below the hash."""


@cache
def load_tree() -> PageTree:
    return build_tree(dict(_read_all(resources.files("trainmaster").joinpath("rest", "pages", "ui"), "")))


def build_tree(contents: Mapping[str, bytes]) -> PageTree:
    """`contents` by path, with "index.html", whose marks `{{tree}}` and `{{preload}}` are replaced."""
    digest = hashlib.sha256()
    for name in sorted(contents):
        for part in (name.encode(), contents[name]):
            digest.update(len(part).to_bytes(8, "big") + part)
    tree = digest.hexdigest()[:16]
    links = "\n".join(f'<link rel="modulepreload" href="{tree}/{name}">' for name in list_modules(contents))
    index = contents[INDEX].replace(_TREE, tree.encode()).replace(_PRELOAD, links.encode())
    files = {name: _describe(name, content) for name, content in contents.items() if name != INDEX}
    return PageTree(tree, _describe(INDEX, index), files)


def list_modules(contents: Mapping[str, bytes]) -> list[str]:
    """The modules that the page needs to start: what its entry imports, directly or not. Dynamic imports do not
    count."""
    found: dict[str, None] = {}
    left = [_ENTRY]
    while left:
        name = left.pop(0)
        if name in found or name not in contents:
            continue
        found[name] = None
        folder = posixpath.dirname(name)
        left += [posixpath.normpath(posixpath.join(folder, at.decode())) for at in _IMPORT.findall(contents[name])]
    return list(found)


def _describe(name: str, content: bytes) -> PageFile:
    ending = posixpath.splitext(name)[1]
    return PageFile(content, _TYPES.get(ending, _OTHER_TYPE), ending in _PACKED)


def _read_all(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read_all(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            yield prefix + entry.name, entry.read_bytes()
