"""Metrics of the engine that runs the controllers."""

from __future__ import annotations

from trainmaster.kit.metrics import CounterSpec, GaugeSpec, HistogramSpec

PASSES = CounterSpec(
    "trainmaster_reconcile_total",
    "Reconciliations by result: ok, wait (asked to be called again), retry (stale), refused, error.",
    ("controller", "result"),
)
SECONDS = HistogramSpec("trainmaster_reconcile_seconds", "Seconds per reconciliation with its writes.", ("controller",))
WRITES = CounterSpec("trainmaster_reconcile_writes_total", "Writes that were accepted.", ("controller",))
QUEUE_DEPTH = GaugeSpec("trainmaster_queue_depth", "Objects in a controller's queue.", ("controller",))
