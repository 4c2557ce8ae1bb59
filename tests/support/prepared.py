"""Stores with the shipped runtimes, prepared once in a process: each test starts on a copy."""

from __future__ import annotations

from functools import cache

from trainmaster.controllers.install import install_runtimes
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.cluster import prepare_store


def copy_runtimes() -> MemoryStore:
    return _prepare().copy()


@cache
def _prepare() -> MemoryStore:
    return prepare_store(install_runtimes)
