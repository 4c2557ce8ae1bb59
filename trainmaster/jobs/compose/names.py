"""The rule for job names: the names of the job's Pods must be valid DNS labels."""

from __future__ import annotations

import re

from trainmaster.api.training.names import LONGEST_LABEL, get_longest_suffix
from trainmaster.api.training.steps import NODE

_NAME = r"[a-z]([a-z0-9-]*[a-z0-9])?"
FORM = "a DNS label that begins with a letter: lower-case letters, digits and '-', no '-' at the end"


def get_longest(nodes: int = 1) -> int:
    """The maximum length of the name of a job with this many nodes."""
    return LONGEST_LABEL - get_longest_suffix({NODE: (1, nodes)})[1]


MANY_NODES = 100_000
"""More nodes than any job has, so a name that is valid with it is valid for every job."""


def is_job_name(name: str, longest: int) -> bool:
    # Compiled when used, so that commands without a job name start faster.
    return len(name) <= longest and re.fullmatch(_NAME, name) is not None
