"""spec.successPolicy: whether the indexes that succeeded so far are enough. The first rule that matches decides."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from trainmaster.api.jobs.indexes import parse_indexes
from trainmaster.api.meta import Object


def find_success(job: Object, completed: Set[int]) -> str | None:
    """The message of the condition, when a rule is met."""
    if not completed:
        return None
    for position, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        if _is_met(rule, completed, job["spec"].get("completions", 0)):
            return f"Matched rules at index {position}"
    return None


def _is_met(rule: Mapping[str, Any], completed: Set[int], completions: int) -> bool:
    count = rule.get("succeededCount")
    if "succeededIndexes" not in rule:
        return count is not None and len(completed) >= count
    wanted = set(parse_indexes(rule["succeededIndexes"], completions))
    if not wanted:
        return False
    found = len(wanted & completed)
    return found == len(wanted) or (count is not None and found >= count)
