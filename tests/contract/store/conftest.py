from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.store.stores import Opener, memory_opener, sqlite_opener


@pytest.fixture(params=["memory", "sqlite inline", "sqlite thread"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    if request.param == "memory":
        return memory_opener(tmp_path)
    return sqlite_opener(tmp_path, request.param.split()[1])


@pytest.fixture(params=["inline", "thread"])
def open_durable(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Stores that can be opened again."""
    return sqlite_opener(tmp_path, request.param)
