"""Metrics in the Prometheus text format."""

from __future__ import annotations

import pytest

from trainmaster.kit.metrics import CounterSpec, GaugeSpec, HistogramSpec, Metrics

pytestmark = pytest.mark.unit


def test_counters_gauges_and_histograms_render_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    counter = metrics.counter(CounterSpec("requests_total", "Requests.", ("verb", "code")))
    counter.add("get", "200")
    counter.add("get", "200", amount=2)
    metrics.gauge(GaugeSpec("open", "Open things."), lambda: 5)
    metrics.gauge(GaugeSpec("depth", "By queue.", ("queue",)), lambda: {("b",): 2, ("a",): 1.5})
    histogram = metrics.histogram(HistogramSpec("took_seconds", "Time.", ("verb",), (0.1, 1)))
    for value in (0.05, 0.5, 5):
        histogram.observe(value, "get")
    assert metrics.render().splitlines() == [
        "# HELP requests_total Requests.",
        "# TYPE requests_total counter",
        'requests_total{verb="get",code="200"} 3',
        "# HELP open Open things.",
        "# TYPE open gauge",
        "open 5",
        "# HELP depth By queue.",
        "# TYPE depth gauge",
        'depth{queue="a"} 1.5',
        'depth{queue="b"} 2',
        "# HELP took_seconds Time.",
        "# TYPE took_seconds histogram",
        'took_seconds_bucket{verb="get",le="0.1"} 1',
        'took_seconds_bucket{verb="get",le="1"} 2',
        'took_seconds_bucket{verb="get",le="+Inf"} 3',
        'took_seconds_sum{verb="get"} 5.55',
        'took_seconds_count{verb="get"} 3',
    ]


def test_label_values_are_escaped() -> None:
    metrics = Metrics()
    metrics.counter(CounterSpec("c", "C.", ("x",))).add('a"b\\c\nd')
    assert 'c{x="a\\"b\\\\c\\nd"} 1' in metrics.render()


def test_hostile_labels_cannot_grow_without_bound() -> None:
    metrics = Metrics()
    counter = metrics.counter(CounterSpec("c", "C.", ("x",)))
    for number in range(5000):
        counter.add(str(number))
    assert len(metrics.render().splitlines()) < 2010 and counter.value("other") == 3000


def test_a_name_is_declared_once() -> None:
    metrics = Metrics()
    metrics.counter(CounterSpec("c", "C."))
    with pytest.raises(ValueError, match="declared twice"):
        metrics.counter(CounterSpec("c", "C."))
