"""Which directories of the owner's caches are shown to the owner's jobs, and what of them is left out. Pure.

The libraries' own variables are followed in the server's environment, because a cache may be on another disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TOKENS = frozenset({"token", "stored_tokens", "credentials", ".netrc"})
_UNFINISHED = (".incomplete", ".lock", ".partial", ".tmp")
_CODE = (".py", ".pyc", ".so", ".sh", ".ipynb")
_LEFT_OUT = frozenset({".locks", "__pycache__"})
_SPACES = "spaces--"
"""Repositories of programs in a Hugging Face cache."""


@dataclass(frozen=True, slots=True)
class CacheSource:
    path: str
    """The owner's directory; it may not exist."""
    place: str
    """Its path in the jobs' cache, which is that in a cache directory without any variables."""


def list_sources(wanted: Sequence[str], environ: Mapping[str, str]) -> list[CacheSource]:
    """`wanted`: paths in a cache directory, such as `huggingface/hub`. Empty if the owner has no home directory."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    if not cache.startswith("/"):
        return []
    moved = {
        "huggingface/hub": environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"),
        "huggingface": environ.get("HF_HOME"),
        "torch": environ.get("TORCH_HOME"),
    }
    return [CacheSource(_find_path(place, cache, home, moved), place) for place in wanted]


def _find_path(place: str, cache: str, home: str, moved: Mapping[str, str | None]) -> str:
    for prefix, path in moved.items():
        if path and (place == prefix or place.startswith(f"{prefix}/")):
            chosen = home + path[1:] if path.startswith("~/") else path
            return os.path.normpath(f"{chosen}/{place[len(prefix) :]}")
    return os.path.normpath(f"{cache}/{place}")


def is_left_out(name: str) -> bool:
    """Whether a file or directory with this name is never shown: tokens, code, unfinished downloads."""
    return (
        name in _TOKENS
        or name in _LEFT_OUT
        or name.startswith(_SPACES)
        or name.endswith(_UNFINISHED)
        or name.lower().endswith(_CODE)
    )
