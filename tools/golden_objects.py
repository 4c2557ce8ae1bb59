"""Reads the objects of a picture, which are recorded as one file per kind."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tests.golden.masking import Object


def read_objects(folder: Path, kinds: Iterable[str]) -> list[Object]:
    found: list[Object] = []
    for kind in kinds:
        path = folder / f"{kind}.json"
        if path.exists():
            found.extend(json.loads(path.read_text()))
    return found
