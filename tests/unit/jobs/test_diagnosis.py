"""One test per finding: the state that shows it, and that its absence shows nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.meta import Object
from trainmaster.jobs.diagnosis import Case, CheckResult, examine
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def moment(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_runtime(**job: Any) -> Object:
    jobs = [{"name": "node", "template": {"spec": job}}]
    return {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain"},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


def make_case(ended: float | None = None, kind: str = "Complete", reason: str = "x", **spec: Any) -> Case:
    """A healthy job: running, or ended so many seconds ago."""
    end = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": moment(ended or 0)}
    trainjob = {
        "metadata": {"name": "a", "namespace": "team", "uid": "u", "creationTimestamp": moment(7200)},
        "spec": {"runtimeRef": {"name": "plain"}, **spec},
        "status": {"conditions": [] if ended is None else [end], "jobsStatus": [{"name": "node"}]},
    }
    return Case(TrainJob(trainjob), NOW, runtime=make_runtime())


def make_pod(phase: str = "Running", **meta: Any) -> Pod:
    return Pod({"metadata": {"name": "a-node-0-0", **meta}, "status": {"phase": phase, "startTime": moment(3600)}})


def with_meta(case: Case, **meta: Any) -> Case:
    return replace(case, job=TrainJob({**case.job.raw, "metadata": {**case.job.meta, **meta}}))


def find_one(case: Case) -> CheckResult:
    [finding] = examine(case)
    return finding


@pytest.mark.parametrize(
    "case",
    [
        make_case(),
        make_case(10, ttlSecondsAfterFinished=60),
        make_case(3600, ttlSecondsAfterFinished=7200),
        replace(make_case(), pods=(make_pod(),), skew=0.4, retries={"retention": 3.0}),
        replace(make_case(3600, ttlSecondsAfterFinished=7200), pods=(make_pod("Succeeded"),)),
        with_meta(make_case(), finalizers=["foregroundDeletion"]),
    ],
    ids=["running", "just over", "kept for its time", "at work", "ended Pods", "ordinary finalizer"],
)
def test_a_healthy_job_has_no_finding(case: Case) -> None:
    assert examine(case) == []


def test_a_finalizer_that_keeps_a_deleted_job() -> None:
    finding = find_one(with_meta(make_case(), finalizers=["example.com/x"], deletionTimestamp=moment(300)))
    assert (finding.check, finding.state) == ("finalizers", "problem")
    assert finding.seen == "deleted 5m ago, and kept by example.com/x"
    assert finding.fix.startswith("trainmaster cleanup --clear-finalizers --yes -n team")
    assert find_one(with_meta(make_case(), finalizers=["example.com/x"])).state == "note"


def test_a_finished_job_that_nobody_will_delete() -> None:
    finding = find_one(make_case(3600))
    assert (finding.check, finding.state) == ("ttl", "note")
    assert finding.fix == "kubectl annotate trainjob a -n team trainmaster.dev/ttl-seconds-after-finished=3600"
    assert examine(replace(make_case(3600), policy=RetentionPolicy(ttl=7200))) == []


def test_a_job_that_is_due_and_still_here() -> None:
    finding = find_one(make_case(3600, ttlSecondsAfterFinished=60))
    assert finding.state == "problem" and "no controller that deletes it runs" in finding.seen
    case = make_case(3600, ttlSecondsAfterFinished=60)
    case.job.raw["status"]["retention"] = {"message": "the disk is full"}
    assert "the disk is full" in find_one(case).seen


def test_the_value_that_is_proposed_for_an_annotation_is_valid() -> None:
    (finding,) = examine(with_meta(make_case(), annotations={"trainmaster.dev/restart": "x"}))
    assert finding.fix.endswith(" --overwrite trainmaster.dev/restart=1")


def test_an_annotation_that_is_no_number() -> None:
    case = with_meta(make_case(), annotations={"trainmaster.dev/ttl-seconds-after-finished": "1h"})
    finding = find_one(case)
    assert (finding.check, finding.state) == ("annotation", "problem")
    assert "--overwrite trainmaster.dev/ttl-seconds-after-finished=3600" in finding.fix


@pytest.mark.parametrize("field", ["ttlSecondsAfterFinished", "activeDeadlineSeconds"])
def test_a_term_at_the_wrong_level(field: str) -> None:
    finding = find_one(replace(make_case(), runtime=make_runtime(**{field: 60})))
    assert (finding.check, finding.state) == ("level", "problem")
    path = f"/spec/template/spec/replicatedJobs/0/template/spec/{field}"
    assert (
        f'kubectl patch clustertrainingruntime plain --type=json -p \'[{{"op": "remove", "path": "{path}"}}]\''
        == finding.fix
    )


def test_children_that_go_alone_and_jobs_that_never_complete() -> None:
    job: Object = {"metadata": {"name": "a-node-0", "namespace": "team"}, "spec": {"completions": 2}}
    assert examine(replace(make_case(), jobs=(Job(job),))) == []
    alone = find_one(replace(make_case(), jobs=(Job({**job, "spec": {"ttlSecondsAfterFinished": 5}}),)))
    assert (alone.check, alone.state) == ("children", "note")
    stuck = find_one(replace(make_case(), jobs=(Job({**job, "status": {"succeeded": 2}}),)))
    assert stuck.state == "problem" and "2 of 2 Pods succeeded, no completionTime" in stuck.seen
    done = {**job, "status": {"succeeded": 2, "completionTime": moment(5)}}
    assert examine(replace(make_case(), jobs=(Job(done),))) == []


def test_pods_at_work_for_a_job_that_ran_into_its_deadline() -> None:
    case = make_case(600, "Failed", "DeadlineExceeded", ttlSecondsAfterFinished=7200)
    finding = find_one(replace(case, pods=(make_pod(),)))
    assert (finding.check, finding.fix) == ("leak", "kubectl delete jobset a -n team")
    assert "DeadlineExceeded" in finding.seen
    assert examine(replace(case, pods=(make_pod(deletionTimestamp=moment(1)),))) == []


def test_a_deadline_that_nobody_enforces() -> None:
    finding = find_one(replace(make_case(activeDeadlineSeconds=60), pods=(make_pod(),)))
    assert (finding.check, finding.state) == ("deadline", "problem")


def test_a_runtime_that_is_missing() -> None:
    finding = find_one(replace(make_case(), runtime=None))
    assert (finding.check, finding.state, finding.fix) == ("runtime", "problem", "kubectl get clustertrainingruntimes")
    assert find_one(replace(make_case(), runtime=None, snapshot=True)).state == "note"
    assert examine(replace(make_case(10, ttlSecondsAfterFinished=60), runtime=None)) == []


def test_a_job_that_no_controller_looks_at() -> None:
    case = make_case()
    finding = find_one(replace(case, job=TrainJob({**case.job.raw, "status": {}})))
    assert (finding.check, finding.state) == ("controller", "problem")


def test_rights_that_are_missing_clocks_that_differ_and_conflicts() -> None:
    access = find_one(replace(make_case(), forbidden=(("delete", "trainjobs.trainer.kubeflow.org"),)))
    assert "--verb=delete --resource=trainjobs.trainer.kubeflow.org -n team" in access.fix
    clock = find_one(replace(make_case(), skew=-90.0))
    assert "90 s behind" in clock.seen
    conflicts = find_one(replace(make_case(), retries={"retention": 25.0}))
    assert "retention had to try 25 times again" in conflicts.seen


def test_pods_that_do_not_start_and_pods_that_the_server_refuses_are_problems() -> None:
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "is not present"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "node", "state": waiting}]}
    stuck = Pod({"metadata": {"name": "p", "namespace": "default"}, "status": status})
    found = find_one(replace(make_case(), pods=[stuck]))
    assert (found.state, found.seen) == ("problem", "ErrImageNeverPull: Pod p: container node: is not present")
    assert found.fix == "kubectl describe pod p -n team"
    job = Job({"metadata": {"name": "j", "uid": "u"}, "spec": {"parallelism": 1}, "status": {}})
    about = {"kind": "Job", "name": "j", "uid": "u"}
    event = ObjectEvent(
        {"metadata": {}, "reason": "FailedCreate", "message": "Error creating: no", "involvedObject": about}
    )
    found = find_one(replace(make_case(), jobs=[job], events=[event]))
    assert found.seen == 'FailedCreate: job "j": Error creating: no'
