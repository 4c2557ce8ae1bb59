"""Metrics that only the operator has: those of controller-runtime, with its names, and of its certificates."""

from __future__ import annotations

from trainmaster.kit.metrics import CounterSpec, GaugeSpec, HistogramSpec

CERTIFICATE_END = GaugeSpec(
    "trainmaster_certificate_expiration_timestamp_seconds",
    "When the certificate that a port of the operator serves with expires, in seconds since 1970.",
    ("port",),
)
RECONCILES = CounterSpec(
    "controller_runtime_reconcile_total",
    "Reconciliations by result: success, requeue_after (asked to be called again), requeue (stale or refused), error.",
    ("controller", "result"),
)
RECONCILE_ERRORS = CounterSpec(
    "controller_runtime_reconcile_errors_total", "Reconciliations that failed.", ("controller",)
)
RECONCILE_SECONDS = HistogramSpec(
    "controller_runtime_reconcile_time_seconds", "Seconds per reconciliation with its writes.", ("controller",)
)
MOST_WORKERS = GaugeSpec(
    "controller_runtime_max_concurrent_reconciles", "Objects that a controller handles in parallel.", ("controller",)
)
ACTIVE_WORKERS = GaugeSpec(
    "controller_runtime_active_workers", "Objects that a controller handles at the moment.", ("controller",)
)
DEPTH = GaugeSpec("workqueue_depth", "Objects in a controller's queue.", ("name",))
ADDS = CounterSpec("workqueue_adds_total", "Objects added to the queue.", ("name",))
RETRIES = CounterSpec("workqueue_retries_total", "Objects added again after their back-off.", ("name",))
WAIT_SECONDS = HistogramSpec(
    "workqueue_queue_duration_seconds", "Seconds for which objects waited in the queue.", ("name",)
)
WORK_SECONDS = HistogramSpec("workqueue_work_duration_seconds", "Seconds per object taken from the queue.", ("name",))
UNFINISHED_SECONDS = GaugeSpec(
    "workqueue_unfinished_work_seconds", "Seconds of the reconciliations in progress, added up.", ("name",)
)
LONGEST_SECONDS = GaugeSpec(
    "workqueue_longest_running_processor_seconds", "Seconds of the longest reconciliation in progress.", ("name",)
)
REQUESTS = CounterSpec(
    "rest_client_requests_total",
    "Answers of the API server, without retried connections; a watch counts when it is opened.",
    ("code", "method", "host"),
)
LEADING = GaugeSpec("leader_election_master_status", "1 if this replica leads, otherwise 0.", ("name",))
