"""Counters, gauges and histograms in the Prometheus text format, without a library.

A part declares its metrics in its `metrics.py`, as specifications. Whoever counts creates the metric from its
specification with the process's `Metrics`; nothing exists at import. `docs/metrics.md` is made of the specifications.
Counting is a dictionary update, because it happens on every request.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

LATENCY_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    type: ClassVar[str]
    name: str
    text: str
    labels: tuple[str, ...] = ()

    def head(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} {self.type}"


@dataclass(frozen=True, slots=True)
class CounterSpec(MetricSpec):
    type = "counter"


@dataclass(frozen=True, slots=True)
class GaugeSpec(MetricSpec):
    type = "gauge"


@dataclass(frozen=True, slots=True)
class HistogramSpec(MetricSpec):
    type = "histogram"
    bounds: tuple[float, ...] = LATENCY_SECONDS


Reading = float | Mapping[tuple[str, ...], float]
"""The value of a gauge; a mapping has one per combination of labels."""


class _Metric(Protocol):
    spec: MetricSpec

    def lines(self) -> Iterator[str]: ...


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _labels(names: Sequence[str], values: Sequence[str], more: str = "") -> str:
    pairs = [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    if more:
        pairs.append(more)
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


class Counter:
    """`add(label, ...)`. More than `most` label combinations are counted together as "other"."""

    def __init__(self, spec: CounterSpec, most: int = 2000) -> None:
        self.spec: MetricSpec = spec
        self._most = most
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        values = self._values
        if labels in values:
            values[labels] += amount
        elif len(values) < self._most:
            values[labels] = amount
        else:
            other = ("other",) * len(self.spec.labels)
            values[other] = values.get(other, 0) + amount

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def values(self) -> Mapping[tuple[str, ...], float]:
        return self._values

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield f"{self.spec.name}{_labels(self.spec.labels, labels)} {_number(value)}"


class Gauge:
    """Asks a function when somebody reads it. Also for counters that somebody else counts."""

    def __init__(self, spec: GaugeSpec | CounterSpec, read: Callable[[], Reading]) -> None:
        self.spec: MetricSpec = spec
        self._read = read

    def lines(self) -> Iterator[str]:
        found = self._read()
        values = found if isinstance(found, Mapping) else {(): found}
        for labels, value in sorted(values.items()):
            yield f"{self.spec.name}{_labels(self.spec.labels, labels)} {_number(value)}"


class Histogram:
    def __init__(self, spec: HistogramSpec) -> None:
        self.spec: MetricSpec = spec
        self._bounds = spec.bounds
        self._values: dict[tuple[str, ...], list[float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        row = self._values.get(labels)
        if row is None:
            # One count per bucket, the overflow bucket, then the sum.
            row = self._values[labels] = [0] * (len(self._bounds) + 2)
        row[bisect_left(self._bounds, value)] += 1
        row[-1] += value

    def copy_as(self, spec: HistogramSpec) -> Histogram:
        """The same observations under another name, with as many labels. The bounds stay."""
        twin = Histogram(dataclasses.replace(spec, bounds=self._bounds))
        twin._values = self._values
        return twin

    def lines(self) -> Iterator[str]:
        name, names = self.spec.name, self.spec.labels
        for labels, row in sorted(self._values.items()):
            total = 0.0
            for bound, count in zip(self._bounds, row, strict=False):
                total += count
                bucket = f'le="{_number(bound)}"'
                yield f"{name}_bucket{_labels(names, labels, bucket)} {_number(total)}"
            total += row[-2]
            infinite = 'le="+Inf"'
            yield f"{name}_bucket{_labels(names, labels, infinite)} {_number(total)}"
            yield f"{name}_sum{_labels(names, labels)} {_number(row[-1])}"
            yield f"{name}_count{_labels(names, labels)} {_number(total)}"


class Metrics:
    """All metrics of a process. Names are unique."""

    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}

    def counter(self, spec: CounterSpec) -> Counter:
        metric = Counter(spec)
        self._add(metric)
        return metric

    def gauge(self, spec: GaugeSpec, read: Callable[[], Reading]) -> None:
        self._add(Gauge(spec, read))

    def histogram(self, spec: HistogramSpec) -> Histogram:
        metric = Histogram(spec)
        self._add(metric)
        return metric

    def read_counter(self, spec: CounterSpec, read: Callable[[], Reading]) -> None:
        """What somebody else counts."""
        self._add(Gauge(spec, read))

    def repeat(self, spec: HistogramSpec, source: Histogram) -> None:
        """A histogram again under another name."""
        self._add(source.copy_as(spec))

    def _add(self, metric: _Metric) -> None:
        name = metric.spec.name
        if name in self._metrics:
            raise ValueError(f"metric {name} is declared twice")
        self._metrics[name] = metric

    def render(self) -> str:
        lines: Iterable[str] = (
            line for metric in self._metrics.values() for part in (metric.spec.head(), metric.lines()) for line in part
        )
        return "\n".join(lines) + "\n"
