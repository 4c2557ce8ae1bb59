"""Exit codes of the command line, the same for every command. Documented in docs/cli.md; scripts depend on them.

0 and 1 are the usual codes, 2 is argparse's code for a wrong command line; the others are specific results.
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
"""The server is running, but it does not answer or is not ready yet."""
ALREADY_RUNNING = 5
"""Another process runs this home."""
TIMED_OUT = 6
"""The awaited state was not reached within the timeout."""
NOT_FOUND = 7
"""The named object does not exist."""
INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT, as in shells."""

# `run` and `watch` return the exit code of the job. Other outcomes have codes that programs rarely use.
RUN_USAGE = 240
"""Wrong command line, or something that it names does not exist; nothing was submitted."""
RUN_NO_SERVER = 241
"""There is no server and none could be started, or it rejects our credentials."""
RUN_REFUSED = 242
"""The server refused the job, or the machine can never hold it."""
RUN_CODE = 243
"""The code could not be uploaded."""
RUN_LOST = 244
"""The connection to the server was lost while the job was running; its processes continue."""
RUN_ENDED = 245
"""The job ended without a failed rank: deleted, deadline exceeded, or never started."""
RUN_DETACHED = 247
"""The user detached; the job continues."""


def keep_apart(parser: argparse.ArgumentParser) -> None:
    """Changes the parser's exit code from 2 to RUN_USAGE, for commands that return the exit code of a job."""

    def fail(message: str) -> NoReturn:
        raise Failure(f"{message}; see `{parser.prog} --help`", RUN_USAGE)

    parser.error = fail  # type: ignore[method-assign]


class Failure(Exception):
    """Ends a command with an exit code and one sentence that says what is wrong and what to do."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class MissingJob(Failure):
    """No TrainJob has this name. `cli.servers.connection.call` adds what the history knows about it."""

    def __init__(self, text: str, namespace: str, name: str) -> None:
        super().__init__(text, NOT_FOUND)
        self.namespace, self.name = namespace, name
