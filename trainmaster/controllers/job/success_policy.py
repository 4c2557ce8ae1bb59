"""spec.successPolicy: whether the indexes that have succeeded are enough. The first rule that matches decides."""

from __future__ import annotations

from collections.abc import Set

from trainmaster.api.jobs.indexes import parse_indexes
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.jobs.models.batch import Job


def find_success(job: Job, completed: Set[int]) -> str | None:
    """The message for the condition if a rule is met."""
    if not completed:
        return None
    for position, rule in enumerate(list_items(job.spec, "successPolicy", "rules")):
        if _is_met(rule, completed, job.completions or 0):
            return f"Matched rules at index {position}"
    return None


def _is_met(rule: Fields, completed: Set[int], completions: int) -> bool:
    count = rule.get("succeededCount")
    if "succeededIndexes" not in rule:
        return count is not None and len(completed) >= count
    wanted = set(parse_indexes(rule["succeededIndexes"], completions))
    if not wanted:
        return False
    found = len(wanted & completed)
    return found == len(wanted) or (count is not None and found >= count)
