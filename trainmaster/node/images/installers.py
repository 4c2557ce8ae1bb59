"""Chooses the pip that installs into an environment: its own if that is new enough, otherwise the one bundled with
Python."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from trainmaster.node.images.contract import ImageError
from trainmaster.node.images.layers import Base

_NEEDED = (22, 2)
"""The first version that reports what it would install."""
_VERSION = re.compile(r"pip-(\d+)\.(\d+)")


def find_pip(base: Base) -> str:
    """A file to import pip from; "" if the environment's own is sufficient."""
    if any(_is_new(entry.name) for place in base.packages for entry in Path(place).glob("pip-*.dist-info")):
        return ""
    found = [path for place in _list_bundles() for path in place.glob("pip-*.whl") if _is_new(path.name)]
    if not found:
        wanted = ".".join(map(str, _NEEDED))
        raise ImageError(f"{base.prefix} has no pip {wanted} or later, and neither has Python: install pip there")
    return str(max(found, key=lambda path: _read_version(path.name)))


def _is_new(name: str) -> bool:
    return _read_version(name) >= _NEEDED


def _read_version(name: str) -> tuple[int, int]:
    match = _VERSION.match(name)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _list_bundles() -> list[Path]:
    import sysconfig  # noqa: PLC0415 - every start loads this module, and few homes ever install anything

    spec = importlib.util.find_spec("ensurepip")
    own = [Path(place, "_bundled") for place in (spec.submodule_search_locations or ())] if spec else []
    given = sysconfig.get_config_var("WHEEL_PKG_DIR")
    return [*own, *([Path(given)] if given else [])]
