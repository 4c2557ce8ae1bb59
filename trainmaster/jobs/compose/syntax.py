"""Checks whether a file is a Python program: with this interpreter, or with another one in a process of its own.

Parsing is not linear: 63 KB of f-strings take a second, and deep nesting has crashed interpreters. Code that is not
trusted is therefore parsed in a separate process with limits on time and memory. What cannot be checked within the
limits counts as a program: the check is a convenience, and the job's own Python decides.
"""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
import warnings

log = logging.getLogger(__name__)

THIS_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PARSE, COMPILE = ast.PyCF_ONLY_AST, 0
"""How thorough the check is: only the compiler finds a `return` outside of a function."""
_CPU_SECONDS = 5
_WALL_SECONDS = 10.0
_MEMORY_BYTES = 1024 * 1024 * 1024
_REFUSED = 3
_PROGRAM = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_SECONDS}, {_CPU_SECONDS}))
try:
    compile(sys.stdin.buffer.read(), "train.py", "exec", int(sys.argv[1]), True)
except SyntaxError as error:
    sys.stdout.buffer.write(f"{{error.lineno or 0}} {{error.msg}}".encode(errors="replace"))
    sys.exit({_REFUSED})
except (ValueError, RecursionError, MemoryError) as error:
    sys.stdout.buffer.write(f"0 {{str(error) or type(error).__name__}}".encode(errors="replace"))
    sys.exit({_REFUSED})
"""


def find_problem(code: bytes, check: int = PARSE) -> str:
    """Why this interpreter cannot run it; "" if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "train.py", "exec", check, dont_inherit=True)
    except SyntaxError as error:
        return _describe(error.msg, error.lineno or 0, THIS_VERSION)
    except (ValueError, RecursionError, MemoryError) as error:
        return _describe(str(error) or type(error).__name__, 0, THIS_VERSION)
    return ""


def find_problem_elsewhere(
    code: bytes, interpreter: str = sys.executable, version: str = THIS_VERSION, check: int = PARSE
) -> str:
    """The same with another interpreter or under limits; "" also if it is unknown. Blocks."""
    command = (interpreter, "-I", "-S", "-c", _PROGRAM, str(check))
    try:
        done = subprocess.run(
            command, input=code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_WALL_SECONDS, check=False
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        log.info("code of a job not checked", extra={"bytes": len(code), "why": type(error).__name__})
        return ""
    if done.returncode == _REFUSED:
        line, _, text = done.stdout.decode(errors="replace").partition(" ")
        return _describe(text[:500], int(line), version)
    if done.returncode:
        log.info("code of a job not checked", extra={"bytes": len(code), "why": f"the parser ended: {done.returncode}"})
    return ""


def _describe(text: str, line: int, version: str) -> str:
    where = f" at line {line}" if line else ""
    return f"is not a Python {version} program{where}: {text}"
