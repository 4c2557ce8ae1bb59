"""Notices a second controller for the same TrainJobs, from who wrote their status: Kubeflow Trainer's manager.

It needs no rights and no requests, because every object says who wrote which part of it, and when (managedFields).
What was written before this operator started does not count: a cluster may have changed from one to the other.
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.training import reports
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.trainjob.reconciler import CONTROLLER
from trainmaster.kit.clock import parse_time
from trainmaster.operator.monitoring.troubles import OperatorTrouble

_OURS = {one.name for one in (CONTROLLER, limits.CONTROLLER, *retention.CONTROLLERS)} | {reports.MANAGER}
_PEOPLE = "kubectl"


class OtherWriters:
    """Sees every TrainJob that the cache gets."""

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._found: dict[str, str] = {}
        """By field manager: a TrainJob."""

    def notice(self, trainjob: Object) -> None:
        meta = trainjob["metadata"]
        for entry in list_items(meta, "managedFields"):
            manager, moment = read_text(entry, "manager"), read_text(entry, "time")
            if entry.get("subresource") != "status" or manager in _OURS or manager.startswith(_PEOPLE):
                continue
            if manager not in self._found and moment and parse_time(moment) > self._since:
                self._found[manager] = f"{meta['namespace']}/{meta['name']}"

    def __call__(self) -> list[OperatorTrouble]:
        return [
            OperatorTrouble(
                "SecondController",
                f'"{manager}" also writes the status of {TRAIN_JOBS.plural}, of {job} for example, and two controllers '
                "undo each other's work: remove Kubeflow Trainer's manager, or run this operator with --companion",
            )
            for manager, job in self._found.items()
        ]
