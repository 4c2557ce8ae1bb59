"""Counters, gauges and histograms in the Prometheus text format, without a client library.

Each part declares its metrics in one place, and `app` creates them with one `Metrics`; nothing is created at import.
Counting is a dictionary update, because it happens on every request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

LATENCY_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _Metric(Protocol):
    name: str

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

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), most: int = 2000) -> None:
        self.name, self._text, self._labels, self._most = name, text, tuple(labels), most
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        values = self._values
        if labels in values:
            values[labels] += amount
        elif len(values) < self._most:
            values[labels] = amount
        else:
            other = ("other",) * len(self._labels)
            values[other] = values.get(other, 0) + amount

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self._text}"
        yield f"# TYPE {self.name} counter"
        for labels, value in sorted(self._values.items()):
            yield f"{self.name}{_labels(self._labels, labels)} {_number(value)}"


class Gauge:
    """Calls a function when it is read. A mapping provides one value per label combination."""

    def __init__(
        self,
        name: str,
        text: str,
        read: Callable[[], float | Mapping[tuple[str, ...], float]],
        labels: Sequence[str] = (),
    ) -> None:
        self.name, self._text, self._read, self._labels = name, text, read, tuple(labels)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self._text}"
        yield f"# TYPE {self.name} gauge"
        found = self._read()
        values = found if isinstance(found, Mapping) else {(): found}
        for labels, value in sorted(values.items()):
            yield f"{self.name}{_labels(self._labels, labels)} {_number(value)}"


class Histogram:
    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), bounds: Sequence[float] = LATENCY_SECONDS
    ) -> None:
        self.name, self._text, self._labels, self._bounds = name, text, tuple(labels), tuple(bounds)
        self._values: dict[tuple[str, ...], list[float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        row = self._values.get(labels)
        if row is None:
            # One count per bucket, the overflow bucket, then the sum.
            row = self._values[labels] = [0] * (len(self._bounds) + 2)
        row[bisect_left(self._bounds, value)] += 1
        row[-1] += value

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self._text}"
        yield f"# TYPE {self.name} histogram"
        for labels, row in sorted(self._values.items()):
            total = 0.0
            for bound, count in zip(self._bounds, row, strict=False):
                total += count
                bucket = f'le="{_number(bound)}"'
                yield f"{self.name}_bucket{_labels(self._labels, labels, bucket)} {_number(total)}"
            total += row[-2]
            infinite = 'le="+Inf"'
            yield f"{self.name}_bucket{_labels(self._labels, labels, infinite)} {_number(total)}"
            yield f"{self.name}_sum{_labels(self._labels, labels)} {_number(row[-1])}"
            yield f"{self.name}_count{_labels(self._labels, labels)} {_number(total)}"


class Metrics:
    """All metrics of a process. Names are unique."""

    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}

    def _add(self, metric: _Metric) -> None:
        if metric.name in self._metrics:
            raise ValueError(f"metric {metric.name} is declared twice")
        self._metrics[metric.name] = metric

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        metric = Counter(name, text, labels)
        self._add(metric)
        return metric

    def gauge(
        self,
        name: str,
        text: str,
        read: Callable[[], float | Mapping[tuple[str, ...], float]],
        labels: Sequence[str] = (),
    ) -> Gauge:
        metric = Gauge(name, text, read, labels)
        self._add(metric)
        return metric

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), bounds: Sequence[float] = LATENCY_SECONDS
    ) -> Histogram:
        metric = Histogram(name, text, labels, bounds)
        self._add(metric)
        return metric

    def render(self) -> str:
        lines: Iterable[str] = (line for metric in self._metrics.values() for line in metric.lines())
        return "\n".join(lines) + "\n"
