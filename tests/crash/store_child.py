"""The process that is killed: opens the store, lets the load run, and reports every step in a line on stdout.

T bucket name value    a write is attempted ("-" is a deletion)
A bucket name revision the write is acknowledged
E bucket name revision an outside watcher received the event
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from tests.crash.bugs import STORES
from tests.crash.history import Key
from tests.crash.load import LIMITS, run_load
from trainmaster.kit import failpoints
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteOptions


class PipeReport:
    """One `write` per line: what is in the pipe survives the process."""

    def attempt(self, key: Key, value: str | None) -> None:
        os.write(1, f"T {key[0]} {key[1]} {value if value is not None else '-'}\n".encode())

    def ack(self, key: Key, revision: int) -> None:
        os.write(1, f"A {key[0]} {key[1]} {revision}\n".encode())

    def deliver(self, key: Key, revision: int) -> None:
        os.write(1, f"E {key[0]} {key[1]} {revision}\n".encode())


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--commit", default="inline")
    parser.add_argument("--failpoints", default="")
    parser.add_argument("--bug", default="")
    arguments = parser.parse_args()
    failpoints.arm(arguments.failpoints)
    options = SqliteOptions(
        limits=LIMITS, commit=arguments.commit, compact_rows=16, checkpoint_pages=30, idle_seconds=0.01
    )
    async with STORES[arguments.bug].open(arguments.directory, SystemClock(), options) as store:
        await run_load(store, PipeReport(), writers=12, seed=arguments.seed, life=arguments.life)


if __name__ == "__main__":
    asyncio.run(main())
