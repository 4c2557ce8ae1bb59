"""Which term is in force, and who set it: the TrainJob, else its runtime, else the installation."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.templates import check_levels, warn_templates
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, ENFORCED_ANNOTATION, TTL_ANNOTATION
from trainmaster.api.lifecycle.terms import EffectiveTerm, check_annotations, check_enforced, find_deadline, find_ttl

pytestmark = pytest.mark.unit

Thing = dict[str, Any]


def job(annotations: dict[str, str] | None = None, **spec: Any) -> Thing:
    return {"metadata": {"name": "j", "annotations": annotations or {}}, "spec": spec}


def runtime(annotations: dict[str, str] | None = None, **spec: Any) -> Thing:
    return {"metadata": {"name": "r", "annotations": annotations or {}}, "spec": spec}


TTL = "ttlSecondsAfterFinished"
ENFORCED = {ENFORCED_ANNOTATION: "true"}


@pytest.mark.parametrize(
    ("trainjob", "runtime", "policy", "term"),
    [
        (job(), None, RetentionPolicy(), None),
        (job(), None, RetentionPolicy(9), EffectiveTerm(9, "installation ConfigMap trainmaster-policy")),
        (
            job(),
            runtime(ttlSecondsAfterFinished=8),
            RetentionPolicy(9),
            EffectiveTerm(8, 'runtime "r" spec.ttlSecondsAfterFinished'),
        ),
        (
            job(),
            runtime(runPolicy={TTL: 7}),
            RetentionPolicy(9),
            EffectiveTerm(7, 'runtime "r" spec.runPolicy.ttlSecondsAfterFinished'),
        ),
        (
            job(),
            runtime({TTL_ANNOTATION: "6"}),
            RetentionPolicy(9),
            EffectiveTerm(6, f'runtime "r" annotation {TTL_ANNOTATION}'),
        ),
        (
            job(ttlSecondsAfterFinished=0),
            runtime(ttlSecondsAfterFinished=8),
            RetentionPolicy(9),
            EffectiveTerm(0, "TrainJob spec.ttlSecondsAfterFinished"),
        ),
        (
            job(cleanupPolicy={TTL: 5}),
            runtime(ttlSecondsAfterFinished=8),
            RetentionPolicy(9),
            EffectiveTerm(5, "TrainJob spec.cleanupPolicy.ttlSecondsAfterFinished"),
        ),
        (
            job({TTL_ANNOTATION: "4"}),
            runtime(ttlSecondsAfterFinished=8),
            RetentionPolicy(9),
            EffectiveTerm(4, f"TrainJob annotation {TTL_ANNOTATION}"),
        ),
        (
            job({TTL_ANNOTATION: "4"}, ttlSecondsAfterFinished=3),
            None,
            RetentionPolicy(),
            EffectiveTerm(3, "TrainJob spec.ttlSecondsAfterFinished"),
        ),
        (job({TTL_ANNOTATION: "soon"}), None, RetentionPolicy(), None),
    ],
    ids=[
        "nobody",
        "installation",
        "runtime",
        "run policy",
        "annotated runtime",
        "job, zero",
        "second spelling",
        "annotated job",
        "field wins",
        "bad annotation",
    ],
)
def test_the_nearest_one_decides(
    trainjob: Thing, runtime: Thing | None, policy: RetentionPolicy, term: EffectiveTerm | None
) -> None:
    assert find_ttl(trainjob, runtime, policy) == term


@pytest.mark.parametrize(
    ("own", "runtime", "policy", "seconds"),
    [
        (100, runtime(ENFORCED, ttlSecondsAfterFinished=8), RetentionPolicy(), 8),
        (3, runtime(ENFORCED, ttlSecondsAfterFinished=8), RetentionPolicy(), 3),
        (100, None, RetentionPolicy(9, enforced=True), 9),
        (100, runtime(ENFORCED, ttlSecondsAfterFinished=20), RetentionPolicy(9, enforced=True), 9),
        (None, runtime(ttlSecondsAfterFinished=20), RetentionPolicy(9, enforced=True), 9),
        (100, runtime(ttlSecondsAfterFinished=8), RetentionPolicy(9), 100),
    ],
    ids=["longer", "shorter", "installation", "the shorter of two", "over a runtime", "not enforced"],
)
def test_an_enforced_retention_may_be_shortened_and_not_lengthened(
    own: int | None, runtime: Thing | None, policy: RetentionPolicy, seconds: int
) -> None:
    trainjob = job()
    if own is not None:
        trainjob["spec"][TTL] = own
    term = find_ttl(trainjob, runtime, policy)
    assert term is not None and term.seconds == seconds
    errors = list(check_enforced(trainjob, runtime, policy))
    assert bool(errors) == (own is not None and own > seconds)


def test_a_job_that_asks_for_more_than_is_enforced_is_told_who_enforces_what() -> None:
    (error,) = check_enforced(
        job(ttlSecondsAfterFinished=100), runtime(ENFORCED, ttlSecondsAfterFinished=8), RetentionPolicy()
    )
    want = 'must not be longer than 8, which the runtime "r" spec.ttlSecondsAfterFinished enforces'
    assert str(error) == f"spec.ttlSecondsAfterFinished: Invalid value: 100: {want}"


def test_the_deadline_of_the_job_goes_before_that_of_the_runtime() -> None:
    above = runtime(activeDeadlineSeconds=50)
    assert find_deadline(job(activeDeadlineSeconds=5), above) == EffectiveTerm(5, "TrainJob spec.activeDeadlineSeconds")
    assert find_deadline(job(), above) == EffectiveTerm(50, 'runtime "r" spec.activeDeadlineSeconds')
    assert find_deadline(job({DEADLINE_ANNOTATION: "7"}), above) == EffectiveTerm(
        7, f"TrainJob annotation {DEADLINE_ANNOTATION}"
    )
    assert find_deadline(job(), runtime()) is None


@pytest.mark.parametrize(
    ("annotations", "count"),
    [
        ({TTL_ANNOTATION: "0", DEADLINE_ANNOTATION: "1", ENFORCED_ANNOTATION: "false"}, 0),
        ({TTL_ANNOTATION: "-1"}, 1),
        ({DEADLINE_ANNOTATION: "0"}, 1),
        ({ENFORCED_ANNOTATION: "1"}, 1),
        ({TTL_ANNOTATION: "", DEADLINE_ANNOTATION: "1.5"}, 2),
    ],
    ids=["good", "negative", "no time at all", "not a flag", "two"],
)
def test_bad_annotations_are_named_each(annotations: dict[str, str], count: int) -> None:
    assert len(list(check_annotations(job(annotations)))) == count


def template(**job_spec: Any) -> Thing:
    return {"spec": {"replicatedJobs": [{"template": {"spec": job_spec}}]}}


@pytest.mark.parametrize(
    "above",
    [runtime(ttlSecondsAfterFinished=1), runtime(runPolicy={TTL: 1}), runtime({TTL_ANNOTATION: "1"})],
    ids=["field", "run policy", "annotation"],
)
def test_a_ttl_on_two_levels_is_refused_and_says_which_to_remove(above: Thing) -> None:
    above["spec"]["template"] = template(ttlSecondsAfterFinished=2)
    (error,) = check_levels(above)
    assert "remove it here" in str(error)
    assert error.path == "spec.template.spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished"


def test_a_ttl_inside_the_template_alone_works_and_warns_of_the_trap() -> None:
    inside = runtime(template=template(ttlSecondsAfterFinished=2, activeDeadlineSeconds=3))
    inside["spec"]["template"]["spec"][TTL] = 4
    assert not list(check_levels(inside))
    first, second, third = warn_templates(inside)
    assert first.startswith(
        "spec.template.spec.ttlSecondsAfterFinished deletes what the TrainJob runs, not the TrainJob"
    )
    assert "replicatedJobs[0]" in second
    assert "activeDeadlineSeconds ends the Job behind the TrainJob's back" in third
