"""Writes the tables of docs/metrics.md from the specifications in the parts' `metrics.py`; the rest is written by hand.

A test compares the two. Run `.venv/bin/python tools/metrics_page.py` after changing a metric.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

from trainmaster.kit.metrics import MetricSpec

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"
UPSTREAM = {
    "Kubeflow Trainer's documentation": ("kubeflow_trainer_",),
    "training-operator": ("training_operator_",),
    "controller-runtime, for the operator on a cluster": (
        "controller_runtime_",
        "workqueue_",
        "rest_client_",
        "leader_election_",
    ),
}
"""By whose names they are: how these begin."""
_BEGIN, _END = "<!-- metrics: made by tools/metrics_page.py -->\n", "<!-- end of metrics -->\n"


def list_metrics() -> list[MetricSpec]:
    """Those of all parts, in the order in which they are declared."""
    found = []
    for path in sorted((ROOT / "trainmaster").glob("*/metrics.py")):
        module = importlib.import_module(f"trainmaster.{path.parent.name}.metrics")
        found += [value for value in vars(module).values() if isinstance(value, MetricSpec)]
    return found


def build_table(specs: Iterable[MetricSpec]) -> str:
    rows = []
    for spec in specs:
        labels = ",".join(f" `{label}`" for label in spec.labels)
        rows.append(f"| `{spec.name}` | {spec.type} |{labels} | {spec.text} |\n")
    return "| metric | type | labels | meaning |\n|---|---|---|---|\n" + "".join(rows)


def build_tables() -> str:
    every = list_metrics()
    known = tuple(prefix for prefixes in UPSTREAM.values() for prefix in prefixes)
    text = build_table(spec for spec in every if not spec.name.startswith(known))
    for source, prefixes in UPSTREAM.items():
        table = build_table(spec for spec in every if spec.name.startswith(prefixes))
        text += f"\nWith the names and labels of {source}:\n\n{table}"
    return text


def build_page(text: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{build_tables()}{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(build_page(PAGE.read_text()))
