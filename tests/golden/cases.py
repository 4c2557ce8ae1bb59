"""The recorded cases, as `tools/import_golden.py` wrote them into `data/`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import orjson

from tests.golden.folding import show_name, unfold

Object = dict[str, Any]

DATA = Path(__file__).parent / "data"
VERSIONS = ("2.1", "2.3")
"""Of Trainer."""
V1 = "1.8"
"""Of training-operator."""
ALL_VERSIONS = (*VERSIONS, V1)


@functools.cache
def list_cases() -> tuple[str, ...]:
    """VERSION/NAME of every case."""
    paths = sorted(DATA.glob("*/cases/*.json"))
    return tuple(f"{path.parent.parent.name}/{path.stem}" for path in paths)


def load_case(name: str) -> Object:
    version, _, case = name.partition("/")
    found: Object = load(f"{version}/cases/{case}.json")
    if version == V1:
        found = show_name(unfold(found, _load_parts()), case)
    return {"last": "", "loose": [], "stagger": 0.0, **found, "case": name}


@functools.cache
def _load_parts() -> list[Object]:
    found: list[Object] = load(f"{V1}/parts.json")
    return found


def load_runtimes(version: str) -> list[Object]:
    """Upstream's ClusterTrainingRuntimes of that version."""
    if version == V1:
        return []
    found: list[Object] = load(f"{version}/runtimes.json")
    return found


def load_refusals(version: str) -> dict[str, Object]:
    """Name -> what was submitted (`object`, or `patch` on a finished TrainJob) and the `answer`; null: let in."""
    return {row["case"]: row for row in load(f"{version}/refusals.json")}


def load(name: str) -> Any:
    return orjson.loads((DATA / name).read_bytes())
