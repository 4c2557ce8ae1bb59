"""Readiness: commits that hang are seen, and what the gauges show."""

from __future__ import annotations

import pytest

from trainmaster.app.health import LONGEST_COMMIT_SECONDS, CommitCheck, declare_gauges
from trainmaster.kit.metrics import Metrics
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_a_disk_that_does_not_answer_makes_the_server_unready_until_it_does() -> None:
    async def main() -> None:
        clock = VirtualClock()
        store = MemoryStore(manual=True)
        check = CommitCheck(store, clock)
        store.put("a", "x", b"")
        assert check() == ""
        await clock.sleep(LONGEST_COMMIT_SECONDS + 2)
        assert check() == "no commit for 12 s"
        store.commit()
        assert check() == ""

    run_virtual(main())


def test_gauges_tell_what_is_written_and_what_is_durable() -> None:
    async def main() -> None:
        store = MemoryStore(manual=True)
        metrics = Metrics()
        declare_gauges(metrics, store)
        store.put("a", "x", b"")
        text = metrics.render()
        assert 'trainmaster_store_revision{state="newest"} 1\n' in text
        assert 'trainmaster_store_revision{state="durable"} 0\n' in text
        assert "process_resident_memory_bytes " in text

    run_virtual(main())
