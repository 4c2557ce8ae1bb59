"""What the jobs of a home use: by job and rank, without Pods of others and of earlier jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from trainmaster.api.labels import (
    COMPLETION_INDEX,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
)
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.apiserver.http.usage import ResourceUsage
from trainmaster.app.usage import PodMeter, build_rank_usage, measure_ranks, sum_gpus, sum_jobs
from trainmaster.history.curves.usage import RankUsage
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.usage import GpuUsage, PodMeasurement
from trainmaster.kit.clock import SystemClock

pytestmark = pytest.mark.unit


class Scale:
    """Every Pod uses half a core and 3 MiB, in two containers."""

    async def measure_pods(self, pods: Sequence[Object]) -> Mapping[str, Mapping[str, ResourceUsage]]:
        half = ResourceUsage(250_000_000, 3 << 19, 10.0)
        uids = [pod["metadata"]["uid"] for pod in pods]
        return {uid: {"node": half, "sidecar": half} for uid in uids if uid != "silent"}

    async def measure_node(self) -> ResourceUsage:
        raise NotImplementedError


class Shelf:
    """A view of one job and its JobSet."""

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        uids = {TRAIN_JOBS: "job", JOB_SETS: "jobset"}
        return {"metadata": {"uid": uids[gvr]}} if gvr in uids and name == "a" else None


def make_pod(uid: str, index: int = 0, attempt: int = 0, jobset: str = "jobset", name: str = "a") -> Pod:
    labels = {
        JOBSET_NAME: name,
        JOBSET_UID: jobset,
        REPLICATED_JOB_NAME: "node",
        JOB_INDEX: "0",
        COMPLETION_INDEX: str(index),
        RESTART_ATTEMPT: str(attempt),
    }
    meta: dict[str, Any] = {"name": f"a-node-0-{index}", "namespace": "ns", "uid": uid, "labels": labels}
    return Pod({"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}})


def measure(*pods: Pod) -> Any:
    return sum_jobs(measure_all(*pods))


def measure_all(*pods: Pod) -> Any:
    return asyncio.run(measure_ranks(pods, Shelf(), PodMeter(Scale(), SystemClock())))  # type: ignore[arg-type]


def test_each_job_has_the_use_of_its_ranks() -> None:
    half = RankUsage(500, 3)
    assert measure(make_pod("p0"), make_pod("p1", 1)) == {"job": (0, {("node", 0): half, ("node", 1): half})}
    assert measure() == {}


def test_only_the_newest_attempt_counts() -> None:
    assert measure(make_pod("p0"), make_pod("p1", 1, attempt=1)) == {"job": (1, {("node", 1): RankUsage(500, 3)})}


def test_pods_of_nobody_of_an_earlier_job_and_silent_ones_are_left_out() -> None:
    lone = Pod({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {}}, "spec": {}, "status": {}})
    assert measure(lone, make_pod("old", jobset="earlier"), make_pod("gone", name="b"), make_pod("silent")) == {}


def test_gpus_count_together() -> None:
    gpus = (GpuUsage(0, "a", 90, 1000), GpuUsage(1, "b", 50, 500), GpuUsage(2, "c"))
    assert build_rank_usage(PodMeasurement(1.0, 1 << 20, gpus)) == RankUsage(1000, 1, 70, 1500)


def test_gpus_are_idle_together_only_if_none_does_anything() -> None:
    gpus = (GpuUsage(0, "a", 0), GpuUsage(1, "b", 1), GpuUsage(2, "c", 0))
    assert build_rank_usage(PodMeasurement(1.0, 1 << 20, gpus)).gpu == 1
    assert build_rank_usage(PodMeasurement(1.0, 1 << 20, gpus[::2])).gpu == 0


def test_the_gpus_of_a_job_are_those_of_all_its_ranks() -> None:
    ranks = [replace(rank, use=PodMeasurement(1.0, 1, (GpuUsage(0, "a", 0),))) for rank in
             measure_all(make_pod("p0"), make_pod("p1", 1))]  # fmt: skip
    (job,) = sum_gpus(ranks).values()
    assert len(job.gpus) == 2 and job.is_idle and job.job.uid == "job"
    assert sum_gpus(measure_all(make_pod("p0"))) == {}
