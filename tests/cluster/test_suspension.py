"""A suspended job has stopped when we say so, and its new Pods never meet the old ones."""

from __future__ import annotations

import pytest

from tests.cluster.site import Site
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.resources import EVENTS, TRAIN_JOBS

pytestmark = pytest.mark.cluster

_STUBBORN = "trap 'echo stopping' TERM; echo begun; while true; do sleep 1; done"
_GRACE_SECONDS = 5


def submit(site: Site) -> None:
    site.add_runtime("stubborn", terminationGracePeriodSeconds=_GRACE_SECONDS)
    for name in ("waiting", "hasty"):
        site.submit(name, _STUBBORN, nodes=2, runtime="stubborn")


def list_uids(site: Site, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in site.list_pods(name)}


def test_suspend_with_wait_returns_when_the_pods_are_gone(site: Site) -> None:
    site.await_ready("waiting")
    assert len(list_uids(site, "waiting")) == 2
    answer = site.run("suspend", "waiting", "--wait", "--timeout", "60s")
    assert answer.code == 0, answer.text
    assert [pod for pod in site.list_pods("waiting") if pod["status"]["phase"] not in ("Succeeded", "Failed")] == []
    assert "nothing of it runs" in site.run("explain", "waiting").out
    assert site.run("delete", "waiting").code == 0


def test_a_resumed_job_waits_for_its_old_pods_and_says_so(site: Site) -> None:
    site.await_ready("hasty")
    old = list_uids(site, "hasty")
    assert len(old) == 2
    assert site.run("suspend", "hasty").code == 0
    site.await_that(
        "its Pods are told to stop", lambda: any("deletionTimestamp" in p["metadata"] for p in site.list_pods("hasty"))
    )
    assert "2 Pods are still ending" in site.run("explain", "hasty").out
    assert site.run("resume", "hasty").code == 0
    seen: set[str] = set()

    def look() -> bool:
        seen.add(site.find_waiting("hasty").get("reason", ""))
        present = list_uids(site, "hasty")
        assert not (present & old and present - old), "old and new Pods have the same names and ranks"
        return len(present - old) == 2

    site.await_that("it goes on", look)
    assert "LeftoverPod" in seen
    assert "LeftoverPod" in {event["reason"] for event in site.list_all(EVENTS)}
    job = site.await_ready("hasty")
    assert "waiting" not in job["status"] and not is_true(list_conditions(job), "Suspended")
    state = site.cluster.kubectl("get", "trainjob", "hasty", "-n", site.namespace, "--no-headers")
    assert "Suspended" not in state, "it runs"
    assert "2 Pods run" in site.run("explain", "hasty").out
    assert site.get(TRAIN_JOBS, "hasty")["spec"]["suspend"] is False
    assert site.run("delete", "hasty").code == 0
