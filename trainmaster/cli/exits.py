"""Exit codes of the command line, the same for every command. Documented in docs/cli.md; scripts depend on them.

0 and 1 are what everyone expects, 2 is argparse's own for a wrong command line; the others answer questions.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

OK = 0
FAILED = 1
USAGE = 2
NOT_RUNNING = 3
"""No server runs in this home."""
NOT_READY = 4
"""The server runs and does not answer, or is not ready yet."""
ALREADY_RUNNING = 5
"""Another process runs this home."""
TIMED_OUT = 6
"""What was waited for did not happen in the time given."""
NOT_FOUND = 7
"""The object that was named does not exist."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""

# `run` and `watch` end with the job's own code. What is not about the job has codes that programs hardly use.
RUN_USAGE = 240
"""Wrong command line, or what it names does not exist; nothing was submitted."""
RUN_NO_SERVER = 241
"""There is no server, and none could be started; or it does not know us."""
RUN_REFUSED = 242
"""The server refused the job, or the machine can never hold it."""
RUN_CODE = 243
"""The code could not be sent."""
RUN_LOST = 244
"""The server is gone while the job runs; its processes go on."""
RUN_ENDED = 245
"""The job ended without a rank to blame: deleted, its deadline, never started."""
RUN_DETACHED = 247
"""Somebody detached; the job goes on."""


def keep_apart(parser: argparse.ArgumentParser) -> None:
    """For commands that end with a job's code: a wrong command line must not look like a job that ended with 2."""

    def fail(message: str) -> NoReturn:
        raise Failure(f"{message}; see `{parser.prog} --help`", RUN_USAGE)

    parser.error = fail  # type: ignore[method-assign]


class Failure(Exception):
    """Ends a command: one sentence that says what is wrong and what to do, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code
