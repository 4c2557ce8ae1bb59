"""What a job may be called. One rule for all who make jobs: the names of its Pods must be DNS labels."""

from __future__ import annotations

import re

from trainmaster.api.training.names import LONGEST_LABEL, get_longest_suffix
from trainmaster.api.training.steps import NODE

_NAME = r"[a-z]([a-z0-9-]*[a-z0-9])?"
FORM = "a DNS label that begins with a letter: lower-case letters, digits and '-', no '-' at the end"


def get_longest(nodes: int = 1) -> int:
    """How many characters the name of a job with so many nodes may have."""
    return LONGEST_LABEL - get_longest_suffix({NODE: (1, nodes)})[1]


MANY_NODES = 100_000
"""More nodes than any job has: a name that suits them suits every job."""


def is_job_name(name: str, longest: int) -> bool:
    # Compiled here: a command that names no job does not need it, and start-up counts.
    return len(name) <= longest and re.fullmatch(_NAME, name) is not None
