"""The history in the home: what it reads from Pod directories, and what is seen if it cannot be opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.app.gauges import declare_history
from trainmaster.app.records import Closed, read_memory
from trainmaster.kit.metrics import Metrics
from trainmaster.shim.protocol import Exited, encode

pytestmark = pytest.mark.unit


def test_a_closed_history_counts_what_it_could_not_write_and_is_never_zero() -> None:
    metrics, closed = Metrics(), Closed("the disk is gone")
    declare_history(metrics, closed)
    assert "trainmaster_history_unwritten 1\n" in metrics.render()
    for uid in ("a", "b", "b"):
        assert asyncio.run(closed.archive({"metadata": {"uid": uid}})) is False
    assert "trainmaster_history_unwritten 2\n" in metrics.render()
    assert closed.find_trouble("a") == "the disk is gone" and not closed.is_archived("a")


def test_the_memory_of_a_pod_is_that_of_its_largest_process(tmp_path: Path) -> None:
    run = tmp_path / "u" / "run"
    run.mkdir(parents=True)
    pod = {"metadata": {"uid": "u"}}
    assert read_memory(tmp_path, pod) == 0
    (run / "node.0.exit.json").write_bytes(encode(Exited(1, 1.0, memory=700)))
    (run / "node.1.exit.json").write_bytes(encode(Exited(0, 2.0, memory=300)))
    (run / "side.0.exit.json").write_bytes(b"{")
    (run / "old.0.exit.json").write_bytes(b'{"code": 0, "at": 1.0}')
    assert read_memory(tmp_path, pod) == 700
