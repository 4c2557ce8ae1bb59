"""Which failures of pip would happen again with the same requirements. Pure.

pip reports "No matching distribution" for a package that does not exist and for an index that does not answer. Its log
tells them apart: it names every page that could not be fetched, with the index's answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LASTING = (
    "No matching distribution found",
    "Invalid requirement",
    "ResolutionImpossible",
    "conflicting dependencies",
    "is not a supported wheel on this platform",
    "is not a valid wheel filename",
    "requires a different Python",
    "does not appear to be a Python project",
    "is not installable",
    "named by a URL or path",
    "metadata-generation-failed",
    "subprocess-exited-with-error",
    "Failed to build",
    "Could not build wheels",
)
_PASSING = (
    r"(?i)Retrying \(|Max retries exceeded|connection (?:broken|error)|Connection(?:Error| refused| reset| aborted)|"
    r"timed out|Timeout|name resolution|Name or service not known|Network is unreachable|ProxyError|SSLError|"
    r"IncompleteRead|Server Error|Too Many Requests|No space left on device|Disk quota exceeded"
)
"""Compiled on first use: every start loads this module."""
_FETCH = r"(?m)Could not fetch URL \S+: (.*?)(?: - skipping)?$"
_REFUSAL = r"(?!408|425|429)4\d\d Client Error"
_NOT_FOUND = "404 Client Error"


def list_fetch_failures(log: str) -> list[str]:
    """Why pages of the index could not be fetched."""
    return re.findall(_FETCH, log)


def has_skipped_sources(log: str) -> bool:
    """Whether pip was told to use wheels only, and there was something else."""
    return "No sources permitted for" in log


def find_index_problem(fetches: Sequence[str]) -> str:
    """Why the index gave no list of versions; "" if it answered, also with 404 for a package that it does not have."""
    return next((why for why in reversed(fetches) if not why.startswith(_NOT_FOUND)), "")


def is_lasting(output: str, fetches: Sequence[str] = ()) -> bool:
    """Whether another try would fail in the same way. When in doubt, it would not."""
    if re.search(_PASSING, output) or not all(re.match(_REFUSAL, why) for why in fetches):
        return False
    return any(text in output for text in _LASTING)
