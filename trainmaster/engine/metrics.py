"""Metrics of the controllers. Declared here, created by `app` with the process's `Metrics`; none at import."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.kit.metrics import Metrics


class EngineMetrics:
    def __init__(self, metrics: Metrics, read_depths: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        labels = ("controller",)
        self.passes = metrics.counter(
            "trainmaster_reconcile_total",
            "Passes over one object by result: ok, wait (asked to look again), retry (stale), refused, error.",
            ("controller", "result"),
        )
        self.seconds = metrics.histogram("trainmaster_reconcile_seconds", "Seconds per pass, writes included.", labels)
        self.writes = metrics.counter("trainmaster_reconcile_writes_total", "Writes that were accepted.", labels)
        metrics.gauge("trainmaster_queue_depth", "Requests that wait for a worker.", read_depths, labels)
