"""A history that cannot be opened is seen in the metrics, so that the alert fires."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.app.records import Closed, declare_history
from trainmaster.kit.metrics import Metrics

pytestmark = pytest.mark.unit


def test_a_closed_history_counts_what_it_could_not_write_and_is_never_zero() -> None:
    metrics, closed = Metrics(), Closed("the disk is gone")
    declare_history(metrics, closed)
    assert "trainmaster_history_unwritten 1\n" in metrics.render()
    for uid in ("a", "b", "b"):
        assert asyncio.run(closed.archive({"metadata": {"uid": uid}})) is False
    assert "trainmaster_history_unwritten 2\n" in metrics.render()
    assert closed.find_trouble("a") == "the disk is gone" and not closed.is_archived("a")
