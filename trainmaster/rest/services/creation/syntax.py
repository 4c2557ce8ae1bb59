"""Checks whether a text is a Python program, without delaying others by more than a few milliseconds.

Parsing is not linear: 63 KB of f-strings take a second, and deep nesting has crashed interpreters. Short texts are
parsed here; all others in a separate process with limits on time and memory, two at a time. A text that cannot be
checked within the limits is accepted: the check is a convenience, and the job's own Python decides.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)

INLINE_BYTES = 4 * 1024
"""At most 15 ms to parse, measured with all inputs known to be slow."""
_CPU_SECONDS = 5
_WALL_SECONDS = 10.0
_WAIT_SECONDS = 15.0
"""Seconds for waiting and the result."""
_MEMORY_BYTES = 1024 * 1024 * 1024
_REFUSED = 3
_PROGRAM = f"""
import ast, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_SECONDS}, {_CPU_SECONDS}))
try:
    ast.parse(sys.stdin.buffer.read().decode(), "train.py")
except SyntaxError as error:
    sys.stdout.buffer.write(f"{{error.lineno or 0}} {{error.msg}}".encode(errors="replace"))
    sys.exit({_REFUSED})
except (ValueError, RecursionError, MemoryError) as error:
    sys.stdout.buffer.write(f"0 {{str(error) or type(error).__name__}}".encode(errors="replace"))
    sys.exit({_REFUSED})
"""

_parsers = ThreadPoolExecutor(2, thread_name_prefix="syntax")
"""Threads that wait for their process; a third text has to wait."""


async def find_syntax_error(code: str) -> str:
    """The parser's message, or "" if it is a Python program (or unknown)."""
    raw = code.encode()
    if len(raw) <= INLINE_BYTES:
        return _parse(code)
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            return await asyncio.get_running_loop().run_in_executor(_parsers, _parse_elsewhere, raw)
    except TimeoutError:
        log.info("code of a job not checked", extra={"bytes": len(raw), "why": "the parsers are busy"})
        return ""


def _parse(code: str) -> str:
    try:
        ast.parse(code, "train.py")
    except SyntaxError as error:
        return _describe(error.msg, error.lineno)
    except (ValueError, RecursionError, MemoryError) as error:
        return _describe(str(error) or type(error).__name__, None)
    return ""


def _parse_elsewhere(raw: bytes) -> str:
    """Blocks."""
    command = (sys.executable, "-I", "-S", "-c", _PROGRAM)
    try:
        done = subprocess.run(
            command, input=raw, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_WALL_SECONDS, check=False
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        log.info("code of a job not checked", extra={"bytes": len(raw), "why": type(error).__name__})
        return ""
    if done.returncode == _REFUSED:
        line, _, text = done.stdout.decode(errors="replace").partition(" ")
        return _describe(text[:500], int(line))
    if done.returncode:
        log.info("code of a job not checked", extra={"bytes": len(raw), "why": f"the parser ended: {done.returncode}"})
    return ""


def _describe(text: str, line: int | None) -> str:
    where = f" at line {line}" if line else ""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"is not a Python {version} program{where}: {text}"
