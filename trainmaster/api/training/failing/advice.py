"""What to do about a failure, from `status.failure`. Pure; used by `run`, `describe` and `explain`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainmaster.api.training.distributions import find_distribution, find_missing_module
from trainmaster.api.training.failing.failures import read_failure_cause

_OUT_OF_MEMORY = "OOMKilled"
_BY_REASON = {
    "StartError": "what it should run is not in the job's environment: `run --package` installs what is missing",
}
"""Advice by the reason of a terminated container."""


def list_advice(failure: Mapping[str, Any], memory: str = "", own: Collection[str] | None = None) -> list[str]:
    """`memory`: its limit, if known. `own`: the names of the modules in the job's code; None if they are not known."""
    return list(_list(failure, memory, own))


def _list(failure: Mapping[str, Any], memory: str, own: Collection[str] | None) -> Iterator[str]:
    reason = str(failure.get("reason") or "")
    if reason == _OUT_OF_MEMORY:
        limit = f" of {memory}" if memory else ""
        yield (
            f"it used more memory than its limit{limit}: raise it with `run --memory` (resourcesPerNode in a manifest)"
            ", or let the program use less"
        )
    elif reason in _BY_REASON:
        yield _BY_REASON[reason]
    module = find_missing_module(read_failure_cause(failure).error)
    if module and own is not None and (name := find_distribution(module, own)):
        yield f"the module {module} is not in the job's environment: `run --package {name}` installs it"
