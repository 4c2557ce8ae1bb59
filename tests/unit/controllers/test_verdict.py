"""Who failed first, and how: what a TrainJob keeps of its Pods and says when it has failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.world import NOW, World, make_runtime, make_trainjob
from trainmaster.api.labels import FIRST_ATTEMPT, RESTART
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.trainjob.reconciler import CONTROLLER
from trainmaster.controllers.verdict import map_failed_job
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

UPSTREAM = "jobset failed due to reaching max number of restarts (first failed job: tj-node-0)"


class Stage(World):
    """A TrainJob that runs; tests end its Pods."""

    def __init__(self) -> None:
        super().__init__()
        self.add(CLUSTER_TRAINING_RUNTIMES, make_runtime())
        self.add(TRAIN_JOBS, make_trainjob(name="tj"))
        self.look()
        jobset = {**self.get(JOB_SETS, "tj"), "status": {"restarts": 0}}
        self.job = self._make(JOBS, "Job", "tj-node-0", self.add(JOB_SETS, jobset), {})

    def _make(self, gvr: Any, kind: str, name: str, owner: Object, status: Object, **meta: Any) -> Object:
        head = {"name": name, "namespace": "default", "ownerReferences": [build_owner_reference(owner)], **meta}
        return self.add(gvr, {"apiVersion": "v1", "kind": kind, "metadata": head, "spec": {}, "status": status})

    def look(self, seconds: float = 0) -> Plan:
        plan = CONTROLLER.reconcile(self, Request("default", "tj"), Now(NOW + timedelta(seconds=seconds)), ())
        self.carry_out(plan.all_writes)
        return plan

    @property
    def status(self) -> Object:
        status: Object = self.get(TRAIN_JOBS, "tj").get("status") or {}
        return status

    def fail_pod(self, rank: int, *, after: int = 0, attempt: int = 0, meta: Any = None, **ended: Any) -> Object:
        marks = {
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
            "batch.kubernetes.io/job-completion-index": str(rank),
        }
        end = {"exitCode": 1, "reason": "Error", "finishedAt": format_time(NOW + timedelta(seconds=after)), **ended}
        status = {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": end}}]}
        self.merge(JOBS, "tj-node-0", {"status": {"failed": 1}})
        return self._make(PODS, "Pod", f"tj-node-0-{rank}-{attempt}", self.job, status, labels=marks, **(meta or {}))

    def fail_jobset(self, restarts: int = 0) -> None:
        entry = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": UPSTREAM}
        conditions = [{**entry, "lastTransitionTime": format_time(NOW)}]
        self.merge(JOB_SETS, "tj", {"status": {"restarts": restarts, "conditions": conditions}})

    @property
    def verdict(self) -> str:
        text: str = self.status["conditions"][0]["message"]
        assert text.startswith(UPSTREAM)
        return text.removeprefix(f"{UPSTREAM}; first failure: ")


def test_the_message_is_upstreams_and_then_the_rank_its_end_and_its_last_words() -> None:
    stage = Stage()
    stage.fail_pod(1, message="Traceback\n  line 3\nValueError: no data\n")
    stage.fail_jobset()
    stage.look()
    want = "rank 1 of job tj-node-0 (Pod tj-node-0-1-0, container node) ended with exit code 1; its last words:\n"
    assert stage.verdict == f"{want}Traceback\n  line 3\nValueError: no data"
    assert stage.status["failure"] == {
        "attempt": 0,
        "job": "tj-node-0",
        "replicatedJob": "node",
        "jobIndex": 0,
        "rank": 1,
        "pod": "tj-node-0-1-0",
        "container": "node",
        "exitCode": 1,
        "reason": "Error",
        "message": "Traceback\n  line 3\nValueError: no data",
        "finishedAt": format_time(NOW),
    }
    assert not stage.look().all_writes


@pytest.mark.parametrize(
    ("ended", "want"),
    [
        pytest.param({"exitCode": 137, "reason": "OOMKilled"}, "was ended by SIGKILL (exit code 137, OOMKilled)"),
        pytest.param({"exitCode": 139, "reason": ""}, "was ended by SIGSEGV (exit code 139)"),
        pytest.param({"exitCode": 143, "signal": 15}, "was ended by SIGTERM (exit code 143, Error)"),
        pytest.param({"exitCode": 255}, "ended with exit code 255"),
        pytest.param({"exitCode": 3, "reason": "ContainerCannotRun"}, "ended with exit code 3 (ContainerCannotRun)"),
    ],
)
def test_signals_and_reasons_are_named(ended: dict[str, Any], want: str) -> None:
    stage = Stage()
    stage.fail_pod(0, **ended)
    stage.fail_jobset()
    stage.look()
    assert stage.verdict.endswith(want)


def test_the_first_to_fail_is_named_and_of_one_second_the_one_that_was_written_first() -> None:
    stage = Stage()
    for rank, after in ((3, 9), (2, 5), (1, 5), (0, 7)):
        stage.fail_pod(rank, after=after)
    stage.look()
    assert stage.status["failure"]["rank"] == 2
    assert "conditions" not in stage.status


def test_a_pod_that_was_stopped_has_not_failed() -> None:
    stage = Stage()
    gone = {"deletionTimestamp": format_time(NOW + timedelta(seconds=32)), "deletionGracePeriodSeconds": 30}
    stage.fail_pod(0, after=3, exitCode=143, meta=gone)
    stage.fail_pod(1, after=4)
    stage.look()
    assert stage.status["failure"]["rank"] == 1


def test_what_was_seen_outlives_the_pods() -> None:
    stage = Stage()
    pod = stage.fail_pod(1, attempt=2)
    plan = stage.look()
    assert [note.reason for note in plan.notes] == ["RankFailed"]
    del stage.objects[PODS, "default", pod["metadata"]["name"]]
    stage.fail_jobset(restarts=2)
    stage.look()
    assert stage.verdict.startswith("rank 1 ")


def test_a_later_attempt_replaces_an_earlier_one_and_not_the_other_way_round() -> None:
    stage = Stage()
    stage.fail_pod(0, attempt=1)
    stage.look()
    stage.fail_pod(1, after=5, attempt=2)
    stage.look()
    assert stage.status["failure"]["rank"] == 1
    del stage.objects[PODS, "default", "tj-node-0-1-2"]
    stage.look()
    assert stage.status["failure"]["attempt"] == 2


def test_attempts_are_counted_over_the_life_of_the_job() -> None:
    stage = Stage()
    stage.fail_pod(0, attempt=2)
    stage.look()
    stage.merge(TRAIN_JOBS, "tj", {"metadata": {"annotations": {RESTART: "3"}}})
    stage.merge(JOB_SETS, "tj", {"metadata": {"annotations": {FIRST_ATTEMPT: "3"}}, "status": {"restarts": 0}})
    del stage.objects[PODS, "default", "tj-node-0-0-2"]
    stage.fail_pod(1, after=5, meta={"annotations": {FIRST_ATTEMPT: "3"}})
    stage.look()
    assert (stage.status["failure"]["attempt"], stage.status["failure"]["rank"]) == (3, 1)


def test_a_verdict_on_a_requested_restart_waits_for_the_pods_of_that_restart() -> None:
    stage = Stage()
    stage.fail_pod(0)
    stage.look()
    del stage.objects[PODS, "default", "tj-node-0-0-0"]
    stage.merge(TRAIN_JOBS, "tj", {"metadata": {"annotations": {RESTART: "1"}}})
    stage.merge(JOB_SETS, "tj", {"metadata": {"annotations": {FIRST_ATTEMPT: "1"}}})
    stage.fail_jobset()
    assert stage.look(1).requeue_after == 1.0


def test_a_verdict_waits_a_moment_for_the_pod_that_explains_it_and_no_longer() -> None:
    stage = Stage()
    stage.fail_jobset()
    plan = stage.look(1)
    assert (plan.all_writes, plan.requeue_after) == ((), 1.0)
    stage.look(2)
    assert stage.status["conditions"][0]["message"] == UPSTREAM
    assert "failure" not in stage.status


def test_a_pod_that_was_evicted_says_so_without_a_container() -> None:
    stage = Stage()
    pod = stage.fail_pod(1)
    status = {"phase": "Failed", "reason": "Evicted", "message": "disk pressure", "containerStatuses": None}
    stage.merge(PODS, pod["metadata"]["name"], {"status": status})
    stage.fail_jobset()
    stage.look()
    assert stage.verdict == "rank 1 of job tj-node-0 failed (Evicted); its last words:\ndisk pressure"


def test_of_many_lines_the_last_are_kept() -> None:
    stage = Stage()
    stage.fail_pod(0, message="\n".join(f"line {number} {'x' * 200}" for number in range(100)))
    stage.look()
    kept = stage.status["failure"]["message"]
    assert len(kept) <= 2048
    assert kept.splitlines()[-1].startswith("line 99 ")


def make_trace(error: str, frames: int = 2) -> str:
    inside = [
        f'  File "/env/lib/python3.11/site-packages/torch/x.py", line {number}, in call' for number in range(frames)
    ]
    own = '  File "/workspace/code/train.py", line 4, in load'
    return "\n".join(["Traceback (most recent call last):", own, *inside, error])


def test_a_deep_traceback_keeps_its_beginning_the_programs_own_frame_and_its_error() -> None:
    stage = Stage()
    stage.fail_pod(0, message=make_trace("ValueError: no data", frames=40))
    stage.fail_jobset()
    stage.look()
    lines = stage.status["failure"]["message"].splitlines()
    assert lines[:2] == make_trace("").splitlines()[:2] and lines[-1] == "ValueError: no data"
    assert TrainJob(stage.get(TRAIN_JOBS, "tj")).state.sentence == "rank 0: ValueError: no data, at train.py:4 in load"


LOST = "RuntimeError: [pair.cc:561] Connection closed by peer [10.244.0.7]:43182."


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rank_that_lost_its_peer_is_not_the_first_to_fail(order: tuple[int, int]) -> None:
    """Whichever is seen first, also if the other one is seen only after a pass."""
    stage = Stage()
    for rank in order:
        stage.fail_pod(rank, after=rank, message=make_trace("ValueError: no data" if rank else LOST))
        stage.look()
    assert stage.status["failure"]["rank"] == 1
    del stage.objects[PODS, "default", "tj-node-0-1-0"]
    stage.look()
    assert stage.status["failure"]["rank"] == 1


def test_a_rank_that_was_stopped_after_its_program_failed_explains_the_one_that_lost_it() -> None:
    """torchrun notices the end of its worker only after a moment; by then, the other node may have given up."""
    stage = Stage()
    stage.fail_pod(0, after=2, message=make_trace(LOST))
    stage.look()
    assert stage.status["failure"]["rank"] == 0
    gone = {"deletionTimestamp": format_time(NOW + timedelta(seconds=32)), "deletionGracePeriodSeconds": 30}
    stage.fail_pod(1, after=2, exitCode=143, signal=15, meta=gone, message=make_trace("ValueError: no data"))
    stage.fail_jobset()
    stage.look()
    failure = stage.status["failure"]
    assert (failure["rank"], failure["exitCode"], "signal" in failure) == (1, 1, False), "as its program ended"
    assert failure["message"].endswith("ValueError: no data")


def test_a_rank_that_was_stopped_without_an_error_explains_nothing() -> None:
    stage = Stage()
    gone = {"deletionTimestamp": format_time(NOW + timedelta(seconds=32)), "deletionGracePeriodSeconds": 30}
    stage.fail_pod(0, after=2, message=make_trace(LOST))
    stage.fail_pod(1, after=3, exitCode=143, signal=15, meta=gone, message="step 3\nstopping")
    stage.look()
    assert stage.status["failure"]["rank"] == 0


def test_only_a_job_that_has_counted_a_failure_wakes_its_trainjob() -> None:
    stage = Stage()
    assert list(map_failed_job(stage, stage.get(JOBS, "tj-node-0"))) == []
    stage.fail_pod(0)
    assert list(map_failed_job(stage, stage.get(JOBS, "tj-node-0"))) == [Request("default", "tj")]


def make_restarted(stage: Stage, rank: int, *, after: int, code: int, now: Object, **meta: Any) -> Object:
    """A Pod whose container was restarted in place after it ended with `code`; `now` is its present state."""
    pod = stage.fail_pod(rank, after=after, meta=meta)
    before = {
        "terminated": {"exitCode": code, "reason": "Error", "finishedAt": format_time(NOW + timedelta(seconds=after))}
    }
    status = {"phase": "Running", "containerStatuses": [{"name": "node", "state": now, "lastState": before}]}
    stage.merge(JOBS, "tj-node-0", {"status": {"failed": 0}})
    return stage.merge(PODS, pod["metadata"]["name"], {"status": status})


def give_up(stage: Stage, reason: str = "BackoffLimitExceeded") -> None:
    text = "Job has reached the specified backoff limit"
    entry = {"type": "FailureTarget", "status": "True", "reason": reason, "message": text}
    stage.merge(JOBS, "tj-node-0", {"status": {"conditions": [{**entry, "lastTransitionTime": format_time(NOW)}]}})


def test_of_a_container_that_was_restarted_in_place_the_run_that_failed_counts() -> None:
    stage = Stage()
    running: Object = {"running": {"startedAt": format_time(NOW + timedelta(seconds=8))}}
    make_restarted(stage, 1, after=7, code=3, now=running)
    stage.look()
    assert "failure" not in stage.status, "its Job has not given up"
    give_up(stage)
    stage.look()
    failure = stage.status["failure"]
    assert (failure["rank"], failure["exitCode"], failure["finishedAt"]) == (
        1,
        3,
        format_time(NOW + timedelta(seconds=7)),
    )


def test_a_run_that_was_stopped_gives_way_to_the_one_before_it_that_failed() -> None:
    stage = Stage()
    asked = {"deletionTimestamp": format_time(NOW + timedelta(seconds=38)), "deletionGracePeriodSeconds": 30}
    stopped = {
        "terminated": {"exitCode": 143, "reason": "Error", "finishedAt": format_time(NOW + timedelta(seconds=9))}
    }
    make_restarted(stage, 1, after=7, code=3, now=stopped, **asked)
    give_up(stage)
    stage.fail_pod(0, after=9, meta=asked, exitCode=143)
    stage.look()
    assert (stage.status["failure"]["rank"], stage.status["failure"]["exitCode"]) == (1, 3)


def test_a_rank_that_went_on_long_after_a_restart_in_place_is_not_blamed() -> None:
    stage = Stage()
    running: Object = {"running": {"startedAt": format_time(NOW)}}
    make_restarted(stage, 0, after=10, code=9, now=running)
    make_restarted(stage, 1, after=500, code=3, now=running)
    give_up(stage)
    stage.look()
    assert stage.status["failure"]["rank"] == 1


def test_of_one_second_a_pod_that_was_not_asked_to_stop_comes_first() -> None:
    stage = Stage()
    asked = {"deletionTimestamp": format_time(NOW + timedelta(seconds=37)), "deletionGracePeriodSeconds": 30}
    stage.fail_pod(0, after=7, meta=asked, exitCode=1)
    stage.fail_pod(1, after=7, exitCode=3)
    stage.fail_jobset()
    stage.look()
    assert stage.status["failure"]["rank"] == 1


def test_a_failure_of_which_no_pod_is_left_is_told_by_its_job() -> None:
    stage = Stage()
    text = "Job has reached the specified backoff limit"
    entry = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": text}
    stage.merge(JOBS, "tj-node-0", {"status": {"conditions": [{**entry, "lastTransitionTime": format_time(NOW)}]}})
    stage.fail_jobset()
    assert not stage.look().all_writes, "its Pods may not be in the view yet"
    stage.look(seconds=5)
    assert stage.verdict == f"job tj-node-0 failed (BackoffLimitExceeded): {text}"
    assert stage.status["failure"] == {
        "attempt": 0,
        "job": "tj-node-0",
        "reason": "BackoffLimitExceeded",
        "message": text,
        "finishedAt": format_time(NOW),
    }
    assert TrainJob(stage.get(TRAIN_JOBS, "tj")).state.sentence == f"tj-node-0: BackoffLimitExceeded: {text}"
