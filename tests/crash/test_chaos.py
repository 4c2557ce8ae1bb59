"""A server that is killed again and again under load loses no job, runs none twice, and leaves nothing behind.

`TRAINMASTER_CHAOS_ROUNDS=500 pytest tests/crash/test_chaos.py -s` kills the server 500 times at each level;
a kill takes about two seconds.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.crash.chaos import Chaos
from tests.support.leaks import nothing_left
from trainmaster.shim.protocol import FULL, PLAIN

KILLS = int(os.environ.get("TRAINMASTER_CHAOS_ROUNDS", "3"))
JOBS = max(12, KILLS * 2)
SEED = os.environ.get("TRAINMASTER_CHAOS_SEED", "1")

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240 + 10 * KILLS)]


@pytest.mark.parametrize("level", [PLAIN, FULL])
def test_no_job_is_lost_or_run_twice_however_often_the_server_is_killed(tmp_path: Path, level: str) -> None:
    chaos = Chaos(tmp_path, level, f"{SEED} {level}")

    async def main() -> None:
        try:
            await chaos.run(KILLS, JOBS)
            await chaos.settle()
            await chaos.clear()
        finally:
            await chaos.abort()

    with nothing_left(chaos.mark), nothing_left(chaos.group_mark):
        asyncio.run(main())
    assert chaos.kills["server"] == KILLS
    print(f"{level}: {JOBS} jobs, killed: {dict(chaos.kills)}")
