"""Trees of the whole source are kept while these tests run, and no longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.house.tree import parse


@pytest.fixture(scope="package", autouse=True)
def _forget_trees() -> Iterator[None]:
    yield
    parse.cache_clear()
