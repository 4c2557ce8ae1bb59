"""Metrics of the API server."""

from __future__ import annotations

from trainmaster.kit.metrics import CounterSpec, GaugeSpec, HistogramSpec

REQUESTS = CounterSpec("apiserver_request_total", "Requests answered.", ("verb", "group", "resource", "code"))
DURATION = HistogramSpec("apiserver_request_duration_seconds", "Time from a complete request to its answer.", ("verb",))
CONNECTIONS = GaugeSpec("apiserver_connections", "Open connections.")
LONG_RUNNING = GaugeSpec("apiserver_longrunning_requests", "Open watches and followed logs.")
