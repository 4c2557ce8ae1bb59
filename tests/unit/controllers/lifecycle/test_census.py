"""What is counted about TrainJobs, change by change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.controllers.world import World
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import conflict
from trainmaster.api.v1jobs.frameworks import PYTORCH, TENSORFLOW
from trainmaster.client.writes import Applied, Delete, Write, WriteRefusal
from trainmaster.controllers.lifecycle.census import Census, Counters, Deletions, find_state
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.metrics import Metrics

pytestmark = pytest.mark.unit

REF = "trainer.kubeflow.org/ClusterTrainingRuntime//plain"


def make(uid: str = "u", condition: str = "", reason: str = "JobsCompleted", **status: Any) -> Object:
    end = {"type": condition, "status": "True", "reason": reason, "lastTransitionTime": "2026-01-01T00:01:00Z"}
    meta = {"name": "a", "namespace": "team", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": {**meta, "resourceVersion": "1"},
        "spec": {"runtimeRef": {"name": "plain"}, "ttlSecondsAfterFinished": 60},
        "status": {"conditions": [end] if condition else [], **status},
    }


@pytest.mark.parametrize(
    ("trainjob", "state"),
    [
        (make(), "Pending"),
        (make(jobsStatus=[{"name": "node", "active": 1}]), "Running"),
        (make(condition="Suspended"), "Suspended"),
        (make(condition="Complete"), "Complete"),
        (make(condition="Failed"), "Failed"),
        ({**make(), "metadata": {**make()["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "Terminating"),
    ],
)
def test_a_trainjob_is_in_one_state(trainjob: Object, state: str) -> None:
    assert find_state(TrainJob(trainjob)) == state


def test_a_job_is_counted_where_it_is_and_nowhere_else() -> None:
    census = Census()
    for trainjob in (make(), make(), make(jobsStatus=[{"active": 1}]), make(condition="Complete")):
        census.put(TRAIN_JOBS, trainjob)
    assert census.count() == {("Complete", "team", REF): 1.0}
    assert census.count_finished() == {("team",): 1.0}
    census.drop(TRAIN_JOBS, "team", "a")
    census.drop(TRAIN_JOBS, "team", "a")
    assert census.count() == {} and census.count_finished() == {}


def test_a_job_is_overdue_when_its_time_is_over_and_it_exists() -> None:
    census = Census()
    census.put(TRAIN_JOBS, make(condition="Complete", retention={"deleteAt": "2026-01-01T00:02:00Z"}))
    assert census.count_overdue(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)) == 0
    assert census.count_overdue(datetime(2026, 1, 1, 0, 3, tzinfo=UTC)) == 1
    census.drop(TRAIN_JOBS, "team", "a")
    assert census.count_overdue(datetime(2026, 1, 1, 0, 3, tzinfo=UTC)) == 0


def test_upstreams_counters_count_news_once_and_nothing_that_was_there_before() -> None:
    metrics, census = Metrics(), Census()
    census.put(TRAIN_JOBS, make("old", "Complete"))
    census.counters = Counters(metrics)
    census.put(TRAIN_JOBS, make("old", "Complete"))
    assert "created_total{" not in metrics.render()
    for trainjob in (make("new"), make("new"), make("new", "Failed", "DeadlineExceeded"), make("new", "Failed", "x")):
        census.put(TRAIN_JOBS, trainjob)
    text = metrics.render()
    assert f'kubeflow_trainer_trainjob_created_total{{namespace="team",runtime_ref="{REF}"}} 1\n' in text
    failed = f'result="failed",reason="DeadlineExceeded",runtime_ref="{REF}"'
    assert f"kubeflow_trainer_trainjob_finished_total{{{failed}}} 1\n" in text
    assert f'lifetime_seconds_sum{{result="failed",runtime_ref="{REF}"}} 60\n' in text


def make_v1(kind: str = "PyTorchJob", condition: str = "", **status: Any) -> Object:
    return {**make("v1", condition, **status), "apiVersion": "kubeflow.org/v1", "kind": kind, "spec": {}}


def test_v1_jobs_are_counted_by_kind_in_the_states_of_trainjobs() -> None:
    census = Census()
    census.put(TRAIN_JOBS, make())
    census.put(PYTORCH.gvr, make_v1(replicaStatuses={"Master": {"active": 1}}))
    census.put(TENSORFLOW.gvr, make_v1("TFJob", "Succeeded", retention={"deleteAt": "2026-01-01T00:02:00Z"}))
    assert census.count() == {("Pending", "team", REF): 1.0}
    assert census.count_finished() == {} and census.count_overdue(datetime(2027, 1, 1, tzinfo=UTC)) == 0
    assert census.count_v1() == {("PyTorchJob", "Running", "team"): 1.0, ("TFJob", "Complete", "team"): 1.0}
    assert census.count_v1_finished() == {("TFJob", "team"): 1.0}
    overdue = census.count_v1_overdue(datetime(2026, 1, 1, 0, 3, tzinfo=UTC))
    assert (overdue[("TFJob",)], overdue[("PyTorchJob",)], len(overdue)) == (1.0, 0.0, 7)
    census.drop(TENSORFLOW.gvr, "team", "a")
    assert census.count_v1() == {("PyTorchJob", "Running", "team"): 1.0}
    assert census.count_v1_overdue(datetime(2026, 1, 1, 0, 3, tzinfo=UTC))[("TFJob",)] == 0


def test_the_counters_of_training_operator_count_news_once() -> None:
    metrics, census = Metrics(), Census()
    census.put(TENSORFLOW.gvr, make_v1("TFJob", restarts=2))
    census.counters = Counters(metrics)
    for job in (make_v1(), make_v1(restarts=1), make_v1(restarts=3), make_v1("PyTorchJob", "Succeeded", restarts=3)):
        for _ in range(2):
            census.put(PYTORCH.gvr, job)
    census.put(TENSORFLOW.gvr, make_v1("TFJob", "Failed", restarts=2))
    lines = [line for line in metrics.render().splitlines() if line.startswith("training_operator_jobs_")]
    assert lines == [
        'training_operator_jobs_created_total{job_namespace="team",framework="pytorch"} 1',
        'training_operator_jobs_successful_total{job_namespace="team",framework="pytorch"} 1',
        'training_operator_jobs_failed_total{job_namespace="team",framework="tensorflow"} 1',
        'training_operator_jobs_restarted_total{job_namespace="team",framework="pytorch"} 3',
    ]
    assert "kubeflow_trainer_trainjob_created_total{" not in metrics.render()


def test_a_v1_job_that_its_ttl_deletes_is_counted() -> None:
    metrics = Metrics()

    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        return Applied(None, 1)

    deletion = Delete(PYTORCH.gvr, "team", "a", "u", "1")
    watched = Deletions(metrics, World(), SystemClock()).watch(apply)

    async def main() -> None:
        for controller in ("retention-pytorchjobs", "pytorchjob"):
            await watched([deletion], controller)

    asyncio.run(main())
    assert 'training_operator_jobs_deleted_total{job_namespace="team",framework="pytorch"} 1\n' in metrics.render()


def test_a_refused_deletion_is_a_retry_and_one_that_worked_has_a_lateness() -> None:
    metrics, world = Metrics(), World()
    world.add(TRAIN_JOBS, make(condition="Complete"))
    answers = [Applied(WriteRefusal(Delete(TRAIN_JOBS, "team", "a"), conflict(TRAIN_JOBS, "a")), 0), Applied(None, 1)]

    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        return answers.pop(0)

    watched = Deletions(metrics, world, SystemClock()).watch(apply)

    async def main() -> None:
        for _ in range(2):
            await watched([Delete(TRAIN_JOBS, "team", "a", "u", "1")], "retention")

    asyncio.run(main())
    text = metrics.render()
    assert 'trainmaster_cleanup_retries_total{controller="retention"} 1\n' in text
    assert 'trainmaster_trainjob_deletions_total{reason="ttl"} 1\n' in text
    assert "trainmaster_deletion_lateness_seconds_count 1\n" in text


def test_jobs_at_rest_are_counted_once_whenever_they_change() -> None:
    outlines = {}
    for name in ("a", "b", "c"):
        outlines[name] = make(condition="Complete")
        outlines[name]["metadata"] = {"name": name, "namespace": "team", "uid": "u"}
    census = Census()

    def change(name: str) -> None:
        census.end_rest(TRAIN_JOBS, outlines[name])
        census.put(TRAIN_JOBS, outlines[name])

    def read_slowly(gvr: GVR) -> Iterator[Object]:
        if gvr == TRAIN_JOBS:
            yield outlines["a"]
            change("a")  # counted already
            change("c")  # not counted yet, and no longer at rest
            yield outlines["b"]

    asyncio.run(census.count_at_rest(read_slowly))
    assert census.count() == {("Complete", "team", REF): 3.0}
    census.end_rest(TRAIN_JOBS, outlines["b"])
    census.drop(TRAIN_JOBS, "team", "b")
    assert census.count_finished() == {("team",): 2.0}


def test_stalls_are_counted_while_they_last_and_once_each() -> None:
    metrics = Metrics()
    census = Census()
    census.put(TRAIN_JOBS, make(stalled={"since": "2026-01-01T00:00:00Z", "message": "m"}))
    census.counters = Counters(metrics)
    assert census.count_stalled() == {("team",): 1.0}
    for since in ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T01:00:00Z"):
        census.put(TRAIN_JOBS, make(stalled={"since": since, "message": "m"}))
    assert 'trainmaster_trainjob_stalls_total{namespace="team"} 1' in metrics.render()
    census.put(TRAIN_JOBS, make())
    assert census.count_stalled() == {("team",): 0.0}


def test_a_job_that_fails_at_its_stall_counts_as_one() -> None:
    metrics = Metrics()
    census = Census()
    census.counters = Counters(metrics)
    for trainjob in (make(), make(condition="Failed", reason="Stalled"), make(condition="Failed", reason="Stalled")):
        census.put(TRAIN_JOBS, trainjob)
    assert 'trainmaster_trainjob_stalls_total{namespace="team"} 1' in metrics.render()
