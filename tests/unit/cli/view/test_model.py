"""What is made of a TrainJob, its Pods and their lines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.view.objects import STARTED, make_condition, make_pod, make_trainjob
from trainmaster.cli.view import model
from trainmaster.cli.view.model import Model, describe_failure, find_exit_code

pytestmark = pytest.mark.unit


def news(seen: Model) -> list[str]:
    return [entry.text for entry in seen.take_news()]


def test_a_job_goes_from_submitted_to_complete_and_each_step_is_told_once() -> None:
    seen = Model("train")
    seen.see_trainjob(make_trainjob())
    assert seen.screen.state == model.SUBMITTED
    seen.see_pod(make_pod(0, "Pending"))
    seen.see_pod(make_pod(0, "Pending"))
    assert news(seen) == ["Starting"]
    seen.see_pod(make_pod(0, running=STARTED))
    seen.see_trainjob(make_trainjob(jobsStatus=[{"name": "node", "active": 1}]))
    assert news(seen) == ["Running"]
    seen.see_pod(make_pod(0, "Succeeded"))
    assert seen.screen.state == model.RUNNING, "it is over when the TrainJob says so"
    seen.see_trainjob(make_trainjob(conditions=[make_condition("Complete", "AllJobsCompleted")]))
    assert news(seen) == ["Complete"]
    assert seen.screen.is_over
    assert seen.screen.runtime == "torch-distributed", "not the name of the copy"


def test_waiting_has_its_reason_and_goes_when_the_reason_goes() -> None:
    seen = Model("train")
    waiting = {"reason": "Queued", "message": "2 of 2 CPUs are taken; position 1", "since": ""}
    seen.see_trainjob(make_trainjob(waiting=waiting))
    assert news(seen) == ["Waiting (Queued): 2 of 2 CPUs are taken; position 1"]
    seen.see_trainjob(make_trainjob(waiting=waiting))
    assert news(seen) == []
    seen.see_pod(make_pod(0, running=STARTED))
    seen.see_trainjob(make_trainjob())
    assert (seen.screen.state, seen.screen.message) == (model.RUNNING, "")


def test_a_stall_is_told_and_that_the_job_goes_on() -> None:
    seen = Model("train")
    seen.see_pod(make_pod(0, running=STARTED))
    news(seen)
    stalled = {"since": STARTED, "message": "no step has come after step 3"}
    for _ in range(2):
        seen.see_trainjob(make_trainjob(stalled=stalled))
    assert seen.screen.state == model.RUNNING
    assert news(seen) == ["Running (Stalled): no step has come after step 3"]
    seen.see_trainjob(make_trainjob())
    assert (news(seen), seen.screen.message) == (["Running"], "")


def test_ranks_that_were_stopped_did_not_fail_and_stay_to_be_seen() -> None:
    seen = Model("train")
    failed, stopped = (
        make_pod(0, "Failed", terminated={"exitCode": 7}),
        make_pod(1, "Failed", terminated={"exitCode": 143}),
    )
    stopped["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    for pod in (failed, stopped):
        seen.see_pod(pod)
    assert news(seen) == ["rank 0 failed: exit code 7", "Starting"]
    for pod in (failed, stopped):
        seen.see_pod(pod, gone=True)
    assert [rank.state for rank in seen.screen.ranks] == ["failed", "stopped"]


def test_a_restart_shows_the_newest_pods_and_is_told() -> None:
    seen = Model("train")
    old, new = make_pod(0, "Failed", terminated={"exitCode": 7}), make_pod(0, attempt=1, running=STARTED)
    seen.see_pod(old)
    assert news(seen) == ["rank 0 failed: exit code 7", "Starting"]
    seen.see_pod(new)
    seen.see_pod(old, gone=True)
    assert (seen.screen.restarts, [rank.state for rank in seen.screen.ranks]) == (1, ["running"])
    assert "restart 1: all ranks start again" in news(seen)
    waiting = {"reason": "RestartBackOff", "message": "pausing", "until": "2026-01-01T00:00:10Z"}
    seen.see_trainjob(make_trainjob(waiting=waiting))
    assert (seen.screen.state, seen.screen.until) == (model.RESTARTING, "2026-01-01T00:00:10Z")


def test_a_restart_that_somebody_asked_for_counts_on() -> None:
    """The next JobSet numbers its own attempts from 0 again; which of all it is, its Pods say."""
    seen = Model("train")
    seen.see_pod(make_pod(0, "Failed", attempt=2, terminated={"exitCode": 1}))
    anew = make_pod(0, running=STARTED)
    anew["metadata"] |= {"annotations": {"trainmaster.dev/first-attempt": "3"}, "name": "anew", "uid": "anew"}
    seen.see_pod(anew)
    assert (seen.screen.restarts, [rank.state for rank in seen.screen.ranks]) == (3, ["running"])


def test_an_older_pod_that_is_seen_late_does_not_hide_the_newer_one() -> None:
    seen = Model("train")
    seen.see_pod(make_pod(0, attempt=1, running=STARTED))
    seen.see_pod(make_pod(0, "Failed", terminated={"exitCode": 7}))
    assert [(rank.attempt, rank.state) for rank in seen.screen.ranks] == [(1, "running")]


@pytest.mark.parametrize(
    ("state", "phase", "want"),
    [
        pytest.param({"terminated": {"exitCode": 7}}, "Failed", ("failed", "exit code 7"), id="code"),
        pytest.param({"terminated": {"exitCode": 139}}, "Failed", ("failed", "SIGSEGV"), id="signal"),
        pytest.param(
            {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            "Failed",
            ("failed", "SIGKILL (OOMKilled)"),
            id="oom",
        ),
        pytest.param({"terminated": {"exitCode": 255}}, "Failed", ("failed", "exit code 255"), id="no signal"),
        pytest.param(
            {"waiting": {"reason": "ErrImagePull", "message": "no rule"}},
            "Pending",
            ("waiting", "ErrImagePull: no rule"),
            id="waits",
        ),
        pytest.param({"waiting": {"reason": "ContainerCreating"}}, "Pending", ("starting", ""), id="ordinary"),
        pytest.param(
            {"waiting": {"reason": "ContainerCreating", "message": 'claim "x" not found'}},
            "Pending",
            ("waiting", 'claim "x" not found'),
            id="a volume is missing",
        ),
        pytest.param({"running": STARTED}, "Running", ("running", ""), id="runs"),
    ],
)
def test_a_rank_says_how_it_is(state: dict[str, Any], phase: str, want: tuple[str, str]) -> None:
    seen = Model("train")
    seen.see_pod(make_pod(0, phase, **state))
    (rank,) = seen.screen.ranks
    assert (rank.state, rank.detail) == want


def test_curves_begin_with_what_was_reported_before_the_view_was_opened() -> None:
    seen = Model("train")
    seen.see_earlier([{"loss": 3.0, "current_step": 1.0, "total_steps": 9.0}, {"loss": 2.0, "lr": 0.1}])
    report = {"lastUpdatedTime": "2026-01-01T00:00:09Z", "metrics": [{"name": "loss", "value": "1"}]}
    seen.see_trainjob(make_trainjob(trainerStatus=report))
    assert seen.screen.metrics == {"loss": [3.0, 2.0, 1.0], "lr": [0.1]}
    assert seen.take_news() == [], "nothing of it is news"


def test_the_number_of_nodes_is_the_jobs_or_the_runtimes() -> None:
    for nodes in (None, 2):
        seen = Model("train", nodes=3)
        job = make_trainjob()
        job["spec"]["trainer"]["numNodes"] = nodes
        seen.see_trainjob(job)
        assert seen.screen.nodes == (nodes or 3)


def test_progress_is_told_and_metrics_become_curves_without_counting_a_report_twice() -> None:
    seen = Model("train")
    for step, loss in ((10, "0.9"), (10, "0.9"), (20, "0.5"), (30, "nan"), (40, "text")):
        report = {
            "progressPercentage": step,
            "estimatedRemainingSeconds": 100 - step,
            "lastUpdatedTime": f"2026-01-01T00:00:{step}Z",
            "metrics": [{"name": "loss", "value": loss}],
        }
        seen.see_trainjob(make_trainjob(trainerStatus=report))
    assert seen.screen.metrics == {"loss": [0.9, 0.5]}
    assert (seen.screen.progress, seen.screen.remaining) == (40.0, 60)
    assert news(seen) == ["10 % loss 0.9", "20 % loss 0.5", "30 %", "40 %"]


def test_deleted_is_an_end_but_not_after_another_one() -> None:
    seen = Model("train")
    seen.see_deleted()
    assert (seen.screen.state, seen.screen.is_over) == (model.DELETED, True)
    done = Model("train")
    done.see_trainjob(make_trainjob(conditions=[make_condition("Failed")]))
    done.see_deleted()
    assert done.screen.state == model.FAILED


def test_another_job_of_the_same_name_is_not_this_one() -> None:
    seen = Model("train")
    first, other = make_trainjob(), make_trainjob()
    first["metadata"]["uid"], other["metadata"]["uid"] = "a", "b"
    seen.see_trainjob(first)
    seen.see_trainjob(other)
    assert seen.screen.state == model.DELETED


def test_the_last_lines_of_a_rank_are_kept() -> None:
    seen = Model("train")
    for number in range(1000):
        seen.see_line(1, f"step {number}")
    assert seen.list_lines(1) == [f"step {number}" for number in range(600, 1000)]
    assert seen.list_lines(0) == []


def test_lines_of_an_earlier_attempt_are_not_those_of_the_last() -> None:
    seen = Model("train")
    for attempt in (0, 0, 1):
        seen.see_line(0, f"attempt {attempt}", attempt)
    assert seen.list_lines(0) == ["attempt 1"]


@pytest.mark.parametrize(
    ("failure", "code", "text"),
    [
        ({"rank": 1, "exitCode": 7}, 7, "rank 1 ended with exit code 7"),
        ({"rank": 0, "exitCode": 137, "signal": 9}, 137, "rank 0 was ended by SIGKILL"),
        ({"rank": 0, "exitCode": 1, "signal": 11}, 139, "rank 0 was ended by SIGSEGV"),
        ({"rank": 0, "exitCode": 0}, 1, "rank 0 ended with exit code 0"),
        ({"rank": 0, "replicatedJob": "launcher", "exitCode": 3}, 3, "launcher 0 ended with exit code 3"),
        ({"rank": 2, "reason": "Evicted"}, None, "rank 2 failed: Evicted"),
    ],
)
def test_the_exit_code_is_that_of_the_rank_that_failed_first(failure: dict[str, object], code: int, text: str) -> None:
    assert find_exit_code(failure) == code
    assert describe_failure(failure) == text


def test_without_a_rank_to_blame_there_is_no_code() -> None:
    assert find_exit_code(None) is None


def test_a_job_that_starts_is_not_merely_submitted_again() -> None:
    seen = Model("train")
    seen.see_trainjob(make_trainjob(jobsStatus=[{"name": "node", "active": 1}]))
    seen.see_trainjob(make_trainjob(jobsStatus=[{"name": "node", "active": 0, "failed": 1}]))
    assert news(seen) == ["Starting"]
