"""Which rank failed first, and how: also where containers are restarted in place, and where no program was started."""

from __future__ import annotations

import pytest

from tests.cluster.site import Site
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS

pytestmark = pytest.mark.cluster

_RANK = "rank=$JOB_COMPLETION_INDEX"


def submit(site: Site) -> None:
    site.add_runtime("in-place", restartPolicy="OnFailure", terminationGracePeriodSeconds=1)
    site.add_runtime("once", terminationGracePeriodSeconds=1)
    site.add_runtime("patient", restartPolicy="OnFailure", terminationGracePeriodSeconds=1, backoff_limit=20)
    site.submit(
        "in-place",
        f"{_RANK}; echo rank $rank; [ $rank = 0 ] && sleep 600; sleep 1; exit 3",
        nodes=2,
        runtime="in-place",
    )
    site.submit("missing", "", runtime="in-place", trainer={"command": ["no-such-program"]})
    site.submit("missing-once", "", runtime="once", trainer={"command": ["no-such-program"]})
    site.submit("talking", "echo loading; echo 'ValueError: no data'; exit 3", runtime="once")
    site.submit("looping", "echo begun; exit 4", nodes=2, runtime="patient")


def await_failure(site: Site, name: str) -> Object:
    job = site.await_job(name, "fails", lambda job: is_true(list_conditions(job), "Failed"))
    failure: Object = job["status"].get("failure") or {}
    return failure


def test_the_rank_is_blamed_that_failed_and_not_one_that_was_stopped_for_it(site: Site) -> None:
    failure = await_failure(site, "in-place")
    assert (failure.get("rank"), failure.get("exitCode"), failure.get("message")) == (1, 3, "rank 1"), failure


@pytest.mark.parametrize("name", ["missing", "missing-once"])
def test_a_program_that_does_not_exist_is_named(site: Site, name: str) -> None:
    failure = await_failure(site, name)
    assert (failure.get("rank"), failure.get("exitCode"), failure.get("reason")) == (0, 128, "StartError"), failure
    assert "no-such-program" in failure["message"]


def test_the_last_words_are_kept(site: Site) -> None:
    assert await_failure(site, "talking")["message"] == "loading\nValueError: no data"
    job = site.get(TRAIN_JOBS, "talking")
    assert "ValueError: no data" in next(one["message"] for one in list_conditions(job) if one["type"] == "Failed")


def test_a_job_that_fails_again_and_again_is_not_said_to_run(site: Site) -> None:
    waiting = site.await_that("it loops", lambda: site.find_waiting("looping"))
    assert waiting["reason"] == "CrashLoopBackOff", waiting
    assert "it ended with exit code 4" in waiting["message"]
    explained = site.run("explain", "looping").out
    assert "exit code 4" in explained and "2 Pods run" not in explained, explained
    site.run("delete", "looping")
