"""A one-line summary of a job's output files."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.app.home.folder import Home
from trainmaster.bundles.walking import format_bytes
from trainmaster.history.results import Output, list_outputs


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
