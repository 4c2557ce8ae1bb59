"""What a job left behind, in one line. Used by outputs, and by who shows a job's end."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.app.home.folder import Home
from trainmaster.bundles.walking import format_bytes
from trainmaster.history.results import Output, list_outputs


def describe_outputs(home: Home, uid: str, job: str, namespace: str = "default") -> str:
    """One line for people: how much a job left and how to get it; "" when it left nothing."""
    found = list_outputs(home.history, uid)
    if not found:
        return ""
    where = "" if namespace == "default" else f" -n {namespace}"
    return f"outputs: {count_outputs(found)}: trainmaster outputs get {job}{where}"


def count_outputs(found: Sequence[Output]) -> str:
    size = format_bytes(sum(output.bytes for output in found))
    return f"1 file, {size}" if len(found) == 1 else f"{len(found):,} files, {size}"
