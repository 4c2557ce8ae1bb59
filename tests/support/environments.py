"""Python environments with real frameworks (`tools/frameworks.py`), for tests that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.frameworks import find_environment
from tools.toolbox import Toolbox


def find_or_skip(name: str) -> Path:
    """The prefix of the environment; without it the test is skipped, with the reason."""
    found = find_environment(name)
    if found is None:
        pytest.skip(Toolbox().why_missing(name))
    return found
