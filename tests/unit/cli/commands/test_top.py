"""`trainmaster top`: the table, from Pods and what was measured of them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cli.commands.top import PodUsage, build_rows
from trainmaster.jobs.usage import GpuUsage

pytestmark = pytest.mark.unit


def make(job: str = "a", rank: int = 0, **more: Any) -> PodUsage:
    base = {"role": "node", "attempt": 0, "pod": f"{job}-{rank}", "cpu": 0.5, "memory": 100 << 20}
    return PodUsage(**{"namespace": "default", "job": job, "rank": rank, **base, **more})


def test_a_job_with_one_rank_is_one_row() -> None:
    header, rows = build_rows([make(cpu_asked=2.0, memory_limit=200 << 20)])
    assert header == ("JOB", "RANK", "CPU", "MEMORY", "GPU", "POD")
    assert [tuple(row) for row in rows] == [("a", "0", "0.50 (25%)", "100Mi (50%)", "-", "a-0")]


def test_several_ranks_have_a_sum() -> None:
    _, rows = build_rows([make(rank=0), make(rank=1, cpu=1.25, memory=20 << 30), make("b")])
    assert [tuple(row) for row in rows] == [
        ("a", "all", "1.75", "20.1Gi", "-", "2 Pods"),
        ("a", "0", "0.50", "100Mi", "-", "a-0"),
        ("a", "1", "1.25", "20.0Gi", "-", "a-1"),
        ("b", "0", "0.50", "100Mi", "-", "b-0"),
    ]


def test_gpus_show_how_busy_they_are_where_the_driver_says_so() -> None:
    busy = (GpuUsage(0, "GPU-a", 80, 1000), GpuUsage(1, "GPU-b", 40, 500))
    _, rows = build_rows([make(gpus=busy, gpu_count=2), make("b", gpus=(GpuUsage(2, "c"),), gpu_count=1)])
    assert [row[4] for row in rows] == ["2 at 60%, 1500Mi", "1"]


def test_what_nobody_has_measured_yet_is_a_dash() -> None:
    _, rows = build_rows([make(cpu=None, memory=None), make(rank=1, cpu=None, memory=None)])
    assert {row[2] for row in rows} == {"-"} and {row[3] for row in rows} == {"-"}


def test_roles_and_namespaces_are_named_where_there_are_several() -> None:
    header, rows = build_rows([make(role="launcher"), make(role="node")], with_namespace=True)
    assert header[0] == "NAMESPACE"
    assert [row[2] for row in rows] == ["all", "launcher 0", "node 0"]
