"""Exit codes of the command line, the same for every command. Documented in docs/cli.md; scripts depend on them.

0 and 1 are what everyone expects, 2 is argparse's own for a wrong command line; the others answer questions.
"""

from __future__ import annotations

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


class Failure(Exception):
    """Ends a command: one sentence that says what is wrong and what to do, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code
