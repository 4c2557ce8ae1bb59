"""What holds for every test: one tier marker, nothing left behind, and the shared fixtures.

A test that leaves an asyncio task, a child process or an open file behind fails, because the next one would pay for
it. Fixtures of a wider scope (a server for a whole module) are set up before the check looks, so they are not counted.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.kube.processes import REPLACED
from tools.scrub import heed_signals, scrub
from tools.testrun import RUN_ORDER, read_markers
from trainmaster.kit import failpoints

# Also for those who call pytest by hand: nothing of their machine reaches the programs that tests start.
for _name in set(os.environ) - set(scrub(os.environ)):
    del os.environ[_name]
heed_signals()

pytest_plugins = ["tests.kube.fixtures", "tests.seam.fixtures"]

# Files that the interpreter or a library opens once and keeps for the life of the process.
_KEPT = ("/dev/", "/proc/", "/usr/", "pipe:[", "anon_inode:[eventpoll]", "anon_inode:[eventfd]")


def pytest_configure() -> None:
    """An environment of an earlier checkout fails in a thousand places otherwise."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for line in needed:
        name = re.split(r"[^\w-]", line, maxsplit=1)[0]
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            text = f"{name} is not installed: `make venv`, or `.venv/bin/pip install '{line}'`"
            raise pytest.UsageError(text) from None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    named: dict[Path, set[str]] = {}
    for item in items:
        tiers = {tier for tier in RUN_ORDER if item.get_closest_marker(tier)}
        if not tiers:
            raise pytest.UsageError(f"{item.nodeid} has no tier marker (one of {', '.join(RUN_ORDER)})")
        if item.path not in named:
            named[item.path] = read_markers(item.path)
        if not tiers <= named[item.path]:
            # `make test` looks for tests of a tier where its marker is named.
            raise pytest.UsageError(f"{item.nodeid}: its marker stands neither in its file nor in a conftest.py")


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay to the end: a full collection need not walk through them each time."""
    gc.collect()
    gc.freeze()


def _children() -> dict[int, str]:
    """pid -> command of our live child processes; zombies count, because nobody has waited for them."""
    found: dict[int, str] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            listed = (task / "children").read_text()
        except (FileNotFoundError, ProcessLookupError):  # a thread that has ended, or no CONFIG_PROC_CHILDREN
            continue
        for pid in listed.split():
            if int(pid) in REPLACED:
                continue
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found[int(pid)] = command.strip() or "(ended, not waited for)"
    return found


def _open_files() -> dict[str, str]:
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if not target.startswith(_KEPT):
            found[entry] = target
    return found


def _new(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [f"{target} (fd {number})" for number, target in after.items() if before.get(number) != target]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    left_tasks: list[str] = []
    cancel_all: Callable[[asyncio.AbstractEventLoop], None] = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]

    def note_and_cancel(loop: asyncio.AbstractEventLoop) -> None:
        # asyncio.run would cancel silently what the test forgot.
        left_tasks.extend(repr(task) for task in asyncio.all_tasks(loop))
        cancel_all(loop)

    monkeypatch.setattr(asyncio.runners, "_cancel_all_tasks", note_and_cancel)
    children, files = _children(), _open_files()
    yield
    left = [f"task: {task}" for task in left_tasks]
    left += [f"child process {pid}: {command}" for pid, command in _children().items() if pid not in children]
    if _new(files, _open_files()):
        gc.collect()  # what is only waiting for the collector is not a leak
        left += [f"open file: {name}" for name in _new(files, _open_files())]
    if left:
        pytest.fail("the test left something behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def _no_failpoint_stays_armed() -> Iterator[None]:
    yield
    failpoints.disarm_all()
