"""Summaries of a job's output files, in one line each."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.app.home.folder import Home
from trainmaster.bundles.walking import format_bytes
from trainmaster.history.lost_files import describe_lost, list_lost
from trainmaster.history.results import Output, list_outputs


def list_closing_lines(home: Home, uid: str, job: str, namespace: str) -> list[str]:
    """What a finished job left, and what it wrote elsewhere and lost."""
    lost = describe_lost(list_lost(home.history, uid, list_outputs(home.history, uid)))
    return [line for line in (describe_outputs(home, uid, job, namespace), lost) if line]


def describe_outputs(home: Home, uid: str, job: str, namespace: str = "default") -> str:
    """The size of a job's outputs and the command to get them; "" if there are none."""
    found = list_outputs(home.history, uid)
    if not found:
        return ""
    where = "" if namespace == "default" else f" -n {namespace}"
    return f"outputs: {count_outputs(found)}: trainmaster outputs get {job}{where}"


def count_outputs(found: Sequence[Output]) -> str:
    size = format_bytes(sum(output.bytes for output in found))
    return f"1 file, {size}" if len(found) == 1 else f"{len(found):,} files, {size}"
