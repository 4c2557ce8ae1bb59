"""Output that is lost is named, in `logs` and in the record; nothing else is printed in its place."""

from __future__ import annotations

import pytest

from tests.cluster.deployment import read_record
from tests.cluster.site import Site
from trainmaster.api.resources import TRAIN_JOBS

pytestmark = pytest.mark.cluster

_ONCE = "if [ $JOB_COMPLETION_INDEX = 1 ] && [ $ATTEMPT = 0 ]; then sleep 1; exit 7; fi; echo attempt $ATTEMPT; sleep 2"
_FINALIZER = "trainmaster.test/kept"


def submit(site: Site) -> None:
    attempt = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
    env = [{"name": "ATTEMPT", "valueFrom": attempt}]
    site.add_runtime("again", max_restarts=1, terminationGracePeriodSeconds=1, container={"env": env})
    site.add_runtime("quick", terminationGracePeriodSeconds=1)
    site.submit("restarted", _ONCE, nodes=2, runtime="again")
    site.submit("gone", "echo words", runtime="quick")
    site.submit("removed", "echo words; sleep 600", runtime="quick")
    site.submit("kept", "echo words", runtime="quick", ttlSecondsAfterFinished=0)


def test_the_logs_of_an_attempt_whose_pods_are_gone_are_missed(site: Site) -> None:
    site.await_end("restarted")
    answer = site.run("logs", "restarted", "--all-attempts")
    assert answer.out.splitlines().count("[0] attempt 1") == 1, answer.text
    notes = [line for line in answer.err.splitlines() if line.startswith("--- ")]
    assert notes == ["--- attempt 0", "--- gap: its 2 Pods are gone, and their logs with them", "--- attempt 1"]


def test_the_record_names_what_it_lacks(site: Site) -> None:
    site.await_end("restarted")
    site.run("delete", "restarted")
    record = site.await_that("it is recorded", lambda: _read_deleted(site, "restarted"))
    assert "attempt 0: its 2 Pods are gone, and their logs with them" in record


def _read_deleted(site: Site, name: str) -> str:
    record = read_record(site.cluster, name, site.namespace)
    return record if "Deleted:" in record else ""


def test_a_finished_job_whose_pods_are_gone_is_not_waited_for(site: Site) -> None:
    site.await_end("gone")
    for pod in site.list_pods("gone"):
        site.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", site.namespace)
    answer = site.run("logs", "gone")
    assert "gone has ended and its Pods are gone" in answer.err and "waits for it" not in answer.err, answer.text


def test_a_log_that_was_removed_with_its_container_is_a_gap(site: Site) -> None:
    site.await_ready("removed")
    [pod] = [pod["metadata"]["name"] for pod in site.list_pods("removed")]
    place = ["-n", site.namespace]
    assert site.run("logs", "removed").out == "[0] words\n"
    patch = f'{{"metadata": {{"finalizers": ["{_FINALIZER}"]}}}}'
    site.cluster.kubectl("patch", "pod", pod, *place, "--type=merge", "-p", patch)
    site.cluster.kubectl("delete", "pod", pod, *place, "--wait=false")
    answer = site.await_that("its container is removed", lambda: _look_for_gap(site))
    assert "unable to retrieve" not in answer, answer
    site.cluster.kubectl("patch", "pod", pod, *place, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    site.run("delete", "removed")


def _look_for_gap(site: Site) -> str:
    answer = site.run("logs", "removed")
    return answer.text if "gap: " in answer.text or "unable to retrieve" in answer.text else ""


def test_a_record_says_why_and_by_whom_a_job_was_deleted(site: Site) -> None:
    site.await_that("it is deleted", lambda: site.find(TRAIN_JOBS, "kept") is None)
    record = site.await_that("it is recorded", lambda: _read_deleted(site, "kept"))
    assert "by system:trainmaster (0 s after its end, by TrainJob spec.ttlSecondsAfterFinished" in record, record
