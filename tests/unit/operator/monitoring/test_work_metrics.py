"""The operator's own metrics: the names of controller-runtime for what the engine and the client do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainmaster.engine.metrics import PASSES, SECONDS
from trainmaster.kit.metrics import Metrics
from trainmaster.operator.mode import OperatorSettings, list_operated
from trainmaster.operator.monitoring.work_metrics import (
    CertificateEnds,
    count_requests,
    declare_leading,
    declare_passes,
    declare_queues,
)
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def list_lines(metrics: Metrics, *beginnings: str) -> list[str]:
    return [line for line in metrics.render().splitlines() if line.startswith(beginnings)]


def test_passes_have_the_results_of_controller_runtime() -> None:
    metrics = Metrics()
    passes, seconds = metrics.counter(PASSES), metrics.histogram(SECONDS)
    declare_passes(metrics, passes, seconds)
    for result in ("ok", "ok", "wait", "retry", "behind", "refused", "error"):
        passes.add("trainjob", result)
    seconds.observe(0.2, "trainjob")
    own = 'controller="trainjob"'
    assert list_lines(metrics, "controller_runtime_reconcile_") == [
        f'controller_runtime_reconcile_total{{{own},result="error"}} 1',
        f'controller_runtime_reconcile_total{{{own},result="requeue"}} 3',
        f'controller_runtime_reconcile_total{{{own},result="requeue_after"}} 1',
        f'controller_runtime_reconcile_total{{{own},result="success"}} 2',
        f"controller_runtime_reconcile_errors_total{{{own}}} 1",
        *(line for line in list_lines(metrics, "controller_runtime_reconcile_time_seconds")),
    ]
    assert f"controller_runtime_reconcile_time_seconds_sum{{{own}}} 0.2" in metrics.render()
    assert 'workqueue_work_duration_seconds_count{name="trainjob"} 1' in metrics.render()


def test_queues_are_read_when_somebody_scrapes() -> None:
    async def main() -> None:
        metrics, clock = Metrics(), VirtualClock()
        controllers = list_operated(OperatorSettings(), None)
        meters = declare_queues(metrics, controllers, clock)
        name = controllers[0].name
        meters[name].note_added("a")
        meters[name].note_added("b")
        meters[name].note_taken("a")
        await clock.sleep(3)
        found = list_lines(metrics, *(f'{metric}{{name="{name}"}}' for metric in QUEUE_NAMES))
        assert [line.split()[1] for line in found] == ["1", "2", "0", "3", "3"]
        own = f'controller="{name}"'
        assert list_lines(metrics, f"controller_runtime_active_workers{{{own}}}")[0].endswith(" 1")
        assert list_lines(metrics, f"controller_runtime_max_concurrent_reconciles{{{own}}}")[0].endswith(" 8")

    run_virtual(main())


QUEUE_NAMES = (
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
)


def test_answers_of_the_api_server_are_counted_by_code_and_method() -> None:
    metrics = Metrics()
    observe = count_requests(metrics, "https://10.0.0.1:6443")
    for method, code in (("GET", 200), ("WATCH", 200), ("PATCH", 409)):
        observe(method, "/api/v1/pods", code)
    assert list_lines(metrics, "rest_client") == [
        'rest_client_requests_total{code="200",method="GET",host="10.0.0.1:6443"} 2',
        'rest_client_requests_total{code="409",method="PATCH",host="10.0.0.1:6443"} 1',
    ]


def test_who_leads_and_until_when_certificates_are_good() -> None:
    metrics, held = Metrics(), [False]
    declare_leading(metrics, "lease", lambda: held[0])
    ends = CertificateEnds(metrics)
    ends.add("webhook", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    ends.add("progress", lambda: None)
    assert list_lines(metrics, "leader_") == ['leader_election_master_status{name="lease"} 0']
    held[0] = True
    assert list_lines(metrics, "leader_") == ['leader_election_master_status{name="lease"} 1']
    name = "trainmaster_certificate_expiration_timestamp_seconds"
    assert list_lines(metrics, name) == [f'{name}{{port="webhook"}} 1767225600']
