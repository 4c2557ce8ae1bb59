"""What a job may be called. One rule for all who make jobs.

The Pods of a job are called NAME-node-0-INDEX-xxxxx, and that is a DNS label: 63 characters at most.
"""

from __future__ import annotations

import re

_LABEL_LENGTH = 63
_AROUND = len("-node-0-") + len("-xxxxx")
_NAME = r"[a-z]([a-z0-9-]*[a-z0-9])?"
FORM = "a DNS label that begins with a letter: lower-case letters, digits and '-', no '-' at the end"


def get_longest(nodes: int = 1) -> int:
    """How many characters the name of a job with so many nodes may have."""
    return _LABEL_LENGTH - _AROUND - len(str(max(nodes, 1) - 1))


MANY_NODES = 100_000
"""More nodes than any job has: a name that suits them suits every job."""
SHORT = get_longest(MANY_NODES)
"""Where it is not known yet how many nodes there will be."""


def is_job_name(name: str, longest: int) -> bool:
    # Compiled here: a command that names no job does not need it, and start-up counts.
    return len(name) <= longest and re.fullmatch(_NAME, name) is not None
