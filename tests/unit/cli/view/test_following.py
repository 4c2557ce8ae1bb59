"""What the view of an existing job starts with."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import cast

import pytest

from tests.unit.cli.view.objects import make_trainjob
from trainmaster.app.home.folder import Home
from trainmaster.cli.context import CommandContext
from trainmaster.cli.view.following import FollowedJob, list_earlier_metrics
from trainmaster.client.contract import Client
from trainmaster.history.archive import Archive
from trainmaster.history.curves.series import read_point
from trainmaster.kit.clock import SystemClock

pytestmark = pytest.mark.unit


def make_followed(home: Home | None, second: int) -> FollowedJob:
    metrics = [{"name": "loss", "value": str(10 - second)}]
    report = {"lastUpdatedTime": f"2026-01-01T00:00:0{second}Z", "metrics": metrics}
    job = make_trainjob(trainerStatus=report)
    job["metadata"]["uid"] = "u"
    context = CommandContext({}, io.StringIO(), io.StringIO())
    return FollowedJob(argparse.Namespace(), context, cast("Client", None), SystemClock(), job, home)


def test_earlier_metrics_come_from_the_history_without_the_current_report(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert list_earlier_metrics(make_followed(home, 3)) == [], "there is no history yet"
    archive = Archive.open(home.history)
    points = [read_point(make_followed(home, second).trainjob) for second in (1, 2, 3)]
    archive.add_points([("u", point) for point in points if point is not None])
    archive.close()
    assert list_earlier_metrics(make_followed(home, 3)) == [{"loss": 9.0}, {"loss": 8.0}]
    assert list_earlier_metrics(make_followed(None, 3)) == [], "a cluster"
