"""Fills the operator's own metrics. Almost all is read only when somebody scrapes; a pass costs three notes.

controller-runtime's metrics of reconciliations are those that the engine counts anyway, under other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

from trainmaster.app.gauges import read_resident_bytes
from trainmaster.app.metrics import MEMORY
from trainmaster.engine.controller import Controller
from trainmaster.engine.queue_meter import QueueMeter
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Counter, Histogram, Metrics
from trainmaster.operator import metrics as specs

_RESULTS = {"ok": "success", "wait": "requeue_after", "error": "error"}
"""Of others: requeue."""

Labelled = dict[tuple[str, ...], float]


def count_requests(metrics: Metrics, server: str) -> Callable[[str, str, int], None]:
    """What an HTTP client calls after each answer."""
    counter, host = metrics.counter(specs.REQUESTS), urlsplit(server).netloc

    def observe(method: str, path: str, code: int) -> None:
        counter.add(str(code), "GET" if method == "WATCH" else method, host)

    return observe


def declare_process(metrics: Metrics) -> None:
    metrics.gauge(MEMORY, read_resident_bytes)


def declare_leading(metrics: Metrics, name: str, is_held: Callable[[], bool]) -> None:
    metrics.gauge(specs.LEADING, lambda: {(name,): float(is_held())})


class CertificateEnds:
    """Of the ports that serve with a certificate, by name."""

    def __init__(self, metrics: Metrics) -> None:
        self._ends: dict[str, Callable[[], datetime | None]] = {}
        metrics.gauge(specs.CERTIFICATE_END, self._read)

    def add(self, port: str, read: Callable[[], datetime | None]) -> None:
        self._ends[port] = read

    def _read(self) -> Labelled:
        found = {port: read() for port, read in self._ends.items()}
        return {(port,): end.timestamp() for port, end in found.items() if end is not None}


def declare_queues(metrics: Metrics, controllers: Sequence[Controller], clock: Clock) -> Mapping[str, QueueMeter]:
    """The meters for the controllers' queues, by controller."""
    waits = metrics.histogram(specs.WAIT_SECONDS)
    meters = {one.name: QueueMeter(clock, partial(_observe, waits, one.name)) for one in controllers}

    def read(get: Callable[[QueueMeter], float]) -> Callable[[], Labelled]:
        return lambda: {(name,): float(get(meter)) for name, meter in meters.items()}

    metrics.gauge(specs.DEPTH, read(lambda meter: meter.depth))
    metrics.read_counter(specs.ADDS, read(lambda meter: meter.added))
    metrics.read_counter(specs.RETRIES, read(lambda meter: meter.retried))
    metrics.gauge(specs.UNFINISHED_SECONDS, read(lambda meter: sum(meter.list_work_seconds())))
    metrics.gauge(specs.LONGEST_SECONDS, read(lambda meter: max(meter.list_work_seconds(), default=0.0)))
    metrics.gauge(specs.ACTIVE_WORKERS, read(lambda meter: meter.active))
    workers: Labelled = {(one.name,): float(one.workers) for one in controllers}
    metrics.gauge(specs.MOST_WORKERS, lambda: workers)
    return meters


def _observe(waits: Histogram, name: str, seconds: float) -> None:
    waits.observe(seconds, name)


def declare_passes(metrics: Metrics, passes: Counter, seconds: Histogram) -> None:
    """What the engine counts, with controller-runtime's names."""

    def read_results() -> Labelled:
        found: Labelled = {}
        for (controller, result), count in passes.values().items():
            key = (controller, _RESULTS.get(result, "requeue"))
            found[key] = found.get(key, 0.0) + count
        return found

    def read_errors() -> Labelled:
        return {(name,): count for (name, result), count in read_results().items() if result == "error"}

    metrics.read_counter(specs.RECONCILES, read_results)
    metrics.read_counter(specs.RECONCILE_ERRORS, read_errors)
    metrics.repeat(specs.RECONCILE_SECONDS, seconds)
    metrics.repeat(specs.WORK_SECONDS, seconds)
