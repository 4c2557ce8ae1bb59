"""A folder that an ordinary user reaches: another run of pytest closes the one that it shares with this one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tm-") as name:
        os.chmod(name, 0o755)
        yield Path(name)
