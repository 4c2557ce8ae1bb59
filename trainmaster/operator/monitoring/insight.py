"""What an operator lets others see of itself: its metrics, and the checks of its probes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from trainmaster.client.http import HttpClient
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Metrics
from trainmaster.operator.monitoring.health import CertificateCheck, Readiness
from trainmaster.operator.monitoring.work_metrics import CertificateEnds, count_requests, declare_process


class Insight:
    def __init__(self, clock: Clock) -> None:
        self.metrics = Metrics()
        self.readiness = Readiness()
        self._clock = clock
        self._ends = CertificateEnds(self.metrics)
        declare_process(self.metrics)

    def count(self, client: HttpClient) -> HttpClient:
        """The same client, whose requests are counted."""
        return client.observed(count_requests(self.metrics, client.server))

    def add_certificate(self, port: str, read_end: Callable[[], datetime | None]) -> None:
        """The port serves with it. `read_end` returns when it expires."""
        self._ends.add(port, read_end)
        self.readiness.add(f"{port}-certificate", CertificateCheck(read_end, self._clock))
