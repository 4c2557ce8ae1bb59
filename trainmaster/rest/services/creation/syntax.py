"""Checks the syntax of a tenant's code without delaying others by more than a few milliseconds.

Short texts are parsed here; all others in a separate process, two at a time. A text for which there is no time is
accepted.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from trainmaster.jobs.compose.syntax import find_problem, find_problem_elsewhere

log = logging.getLogger(__name__)

INLINE_BYTES = 4 * 1024
"""At most 15 ms to parse, measured with all inputs known to be slow."""
_WAIT_SECONDS = 15.0
"""Seconds for waiting and the result."""

_parsers = ThreadPoolExecutor(2, thread_name_prefix="syntax")
"""Threads that wait for their process; a third text has to wait."""


async def find_syntax_error(code: str) -> str:
    """The parser's message, or "" if it is a Python program (or unknown)."""
    raw = code.encode()
    if len(raw) <= INLINE_BYTES:
        return find_problem(raw)
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            return await asyncio.get_running_loop().run_in_executor(_parsers, find_problem_elsewhere, raw)
    except TimeoutError:
        log.info("code of a job not checked", extra={"bytes": len(raw), "why": "the parsers are busy"})
        return ""
