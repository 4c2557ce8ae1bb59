"""Where upstream is not the model: it accepts these, and then nothing happens, or something silly.

One function per line of the table that came with the recordings; ours must do what the line's last column says. Why a
job waits stands in `status.waiting` and in an event; conditions stay upstream's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.golden import cases, pending
from tests.golden.differences import find_refused
from tests.golden.harness import list_missing, run_case, submit
from tests.golden.masking import Object

pytestmark = pytest.mark.golden

LONG_NAME = next(name for name in cases.list_cases() if name.startswith("2.1/long-name"))
Line = Callable[[], None]
LINES: dict[str, Line] = {}


def line(check: Line) -> Line:
    LINES[check.__name__.replace("_", " ")] = check
    return check


def check_refused(case: str) -> None:
    listed, ours = find_refused(case), run_case(case).refusal
    assert listed is not None
    assert ours is not None, f"{case} is let in"
    assert not list_missing({"texts": listed.texts}, ours), ours.message


def find_objects(case: str, moment: str, kind: str) -> list[Object]:
    outcome = run_case(case)
    assert outcome.refusal is None, outcome.refusal
    return [obj for obj in outcome.captures[moment] if obj["kind"] == kind]


def get_trainjob(case: str, moment: str = "end") -> Object:
    found = find_objects(case, moment, "TrainJob")
    assert len(found) == 1
    return found[0]


def get_condition(case: str, kind: str, moment: str = "end") -> Any:
    conditions = get_trainjob(case, moment).get("status", {}).get("conditions", [])
    found = [(entry["status"], entry["reason"]) for entry in conditions if entry["type"] == kind]
    return found[0] if found else None


def get_waiting(case: str, moment: str = "end") -> Object:
    waiting: Object | None = get_trainjob(case, moment).get("status", {}).get("waiting")
    assert waiting, "status.waiting is empty"
    said = [event for event in run_case(case).events if event["about"] == "TrainJob"]
    assert said, "there is no event on the TrainJob"
    return waiting


@line
def a_container_that_the_job_does_not_have_is_refused_with_the_names_that_it_has() -> None:
    check_refused("2.1/a2-wrong-container")
    check_refused("2.3/p-patch-unknown-container")


@line
def a_job_that_the_runtime_does_not_have_is_refused_with_the_names_that_it_has() -> None:
    check_refused("2.3/o-patch-unknown-job")


@line
def what_no_pod_can_have_is_refused_with_the_field() -> None:
    for case in ("2.1/b6-volume-two-sources", "2.1/b7-mount-without-volume", "2.1/b8-gpu-mismatch"):
        check_refused(case)


@line
def a_missing_service_account_is_said_on_the_trainjob() -> None:
    waiting = get_waiting("2.1/b4-missing-service-account")
    assert "nobody" in waiting["message"]
    assert "service account" in waiting["message"].replace("serviceaccount", "service account")


@line
def pods_that_no_node_takes_are_said_on_the_trainjob_with_what_would_match() -> None:
    waiting = get_waiting("2.1/b5-unschedulable")
    for text in ("topology.kubernetes.io/zone", "nowhere", "ap-northeast-2a"):
        assert text in waiting["message"]


@line
def counts_below_one_are_refused() -> None:
    for case in ("2.1/cf-numnodes-zero", "2.1/cg-numnodes-negative", "2.1/ca-numproc-zero"):
        check_refused(case)


@line
def a_reserved_variable_is_refused_unless_it_says_the_same() -> None:
    check_refused("2.1/ce-reserved-env-let-in")
    trainjob = copy.deepcopy(cases.load_case("2.1/ce-reserved-env-let-in")["manifest"][-1])
    trainjob["spec"]["trainer"]["env"][0]["value"] = str(trainjob["spec"]["trainer"]["numNodes"])
    [(refusal, warnings)] = submit("2.1", trainjob)
    assert refusal is None, refusal
    assert any("PET_NNODES" in text for text in warnings)


@line
def a_torch_runtime_without_spec_trainer_gets_the_variables_of_the_defaults() -> None:
    for pod in find_objects("2.1/cd-no-trainer", "running", "Pod"):
        container = pod["spec"]["containers"][0]
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("1", "1")
        assert env["PET_MASTER_ADDR"] == "cd-no-trainer-node-0-0.cd-no-trainer"
        assert env["PET_MASTER_PORT"] == "29500"
        assert "PET_NODE_RANK" in env
        assert [port["containerPort"] for port in container["ports"]] == [29500]


@line
def an_invalid_label_is_refused() -> None:
    check_refused("2.1/d3-labels-bad-value")


@line
def a_runtime_without_the_label_is_warned_about_and_so_is_the_trainjob_that_it_ignores() -> None:
    runtime, trainjob = cases.load_case("2.1/e2-runtime-without-label")["manifest"]
    (refused, about_runtime), (also_refused, about_trainjob) = submit("2.1", runtime, trainjob)
    assert refused is None and also_refused is None
    label = "trainer.kubeflow.org/trainjob-ancestor-step"
    assert any(label in text for text in about_runtime)
    assert any("spec.trainer" in text and label in text for text in about_trainjob)


@line
def a_name_that_is_too_long_for_what_is_derived_from_it_is_refused_with_the_limit() -> None:
    check_refused(LONG_NAME)


@line
def a_ttl_inside_the_template_never_makes_a_job_run_again_and_is_warned_about() -> None:
    case = "2.1/p5-ttl-rerun"
    assert get_condition(case, "Complete") == ("True", "AllJobsCompleted")
    for kind in ("JobSet", "Job", "Pod"):
        assert find_objects(case, "end", kind) == []
    created = [event for event in run_case(case).events if event["reason"] == "SuccessfulCreate"]
    assert sum(sum(event["messages"].values()) for event in created) == 1
    [(refused, warnings)] = submit("2.1", cases.load_case(case)["manifest"][0])
    assert refused is None
    assert any("ttlSecondsAfterFinished" in text for text in warnings)


@line
def changes_around_suspension_are_refused_or_applied_and_conditions_tell_the_truth() -> None:
    # s2: metadata of the override goes away while suspended; the resumed Pods are the new ones.
    case = "2.1/s2-suspended-while-running"
    pods = find_objects(case, "3-resumed", "Pod")
    assert len(pods) == 2
    assert all("topology.kubernetes.io/zone" in pod["spec"]["nodeSelector"] for pod in pods)
    assert get_condition(case, "Suspended", "3-resumed") == ("False", "Resumed")
    # s3, s4: numNodes cannot change; the job resumes or is suspended as it was.
    for case in ("2.1/s3-numnodes-suspended", "2.1/s4-numnodes-running"):
        assert run_case(case).answers[0] is not None, f"{case}: numNodes was changed"
        assert run_case(case).answers[1] is None
    assert len(find_objects("2.1/s3-numnodes-suspended", "end", "Pod")) == 2
    assert find_objects("2.1/s4-numnodes-running", "end", "Pod") == []
    assert get_condition("2.1/s4-numnodes-running", "Suspended") == ("True", "Suspended")
    # s5: a changed override is applied at resume. s6: a volume more is refused, or it is there.
    pods = find_objects("2.1/s5-running-suspended-resumed", "3-resumed", "Pod")
    assert [pod["metadata"]["annotations"].get("note") for pod in pods] == ["user", "user"]
    pods = find_objects("2.1/s6-volume-suspended", "end", "Pod")
    assert len(pods) == 2
    want = ["/data"] if run_case("2.1/s6-volume-suspended").answers[0] is None else []
    for pod in pods:
        mounts = pod["spec"]["containers"][0].get("volumeMounts", [])
        assert [mount["mountPath"] for mount in mounts] == want
    assert get_condition("2.1/s6-volume-suspended", "Complete") == ("True", "AllJobsCompleted")


@line
def after_a_deadline_the_counts_are_true() -> None:
    assert get_condition("2.3/h-deadline", "Failed") == ("True", "DeadlineExceeded")
    for counts in get_trainjob("2.3/h-deadline")["status"].get("jobsStatus", []):
        assert (counts["active"], counts["ready"]) == (0, 0)


def works(check: Line) -> bool:
    try:
        check()
    except (AssertionError, LookupError):
        return False
    return True


@pytest.mark.parametrize("name", list(LINES))
def test_the_line_works(name: str) -> None:
    if name in pending.LINES:
        assert not works(LINES[name]), f"it works now: remove {name!r} from LINES in tests/golden/pending.py"
    else:
        LINES[name]()
