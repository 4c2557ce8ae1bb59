"""Processes that are killed again and again under load: no job is lost or run twice, and nothing is left behind.

    TRAINMASTER_CHAOS_KILLS=500 TRAINMASTER_CHAOS_SEED=2 pytest tests/crash/test_chaos.py -s

kills 500 processes at each level: servers, zygotes, warm zygotes and shims. A kill takes about a second and a half.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.crash.chaos import Chaos
from tests.support.leaks import nothing_left
from trainmaster.node.network.leases import name_home
from trainmaster.shim.protocol import FULL, PLAIN

KILLS = int(os.environ.get("TRAINMASTER_CHAOS_KILLS", "8"))
SEED = os.environ.get("TRAINMASTER_CHAOS_SEED", "1")

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240 + 20 * KILLS)]


@pytest.mark.parametrize("level", [PLAIN, FULL])
def test_no_job_is_lost_or_run_twice_whatever_is_killed(tmp_path: Path, level: str) -> None:
    chaos = Chaos(tmp_path, level, f"{SEED} {level}")
    print(f"{level}: {KILLS} kills, seed {SEED}", flush=True)

    async def main() -> None:
        try:
            await chaos.run(KILLS)
            await chaos.settle()
            await chaos.clear()
        except BaseException:
            await chaos.abort()
            raise

    with nothing_left(chaos.mark), nothing_left(str(chaos.home)), nothing_left(name_home(chaos.home / "pods")):
        asyncio.run(main())
    assert chaos.count >= KILLS
    print(f"{level}: killed {dict(chaos.kills)}; {len(chaos.jobs)} jobs, {chaos.warm_starts} warm starts, seed {SEED}")
