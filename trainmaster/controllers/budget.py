"""Decides whether restarting a failed training job makes sense, beyond the number of restarts that are left. Pure.

- The same error three times running, without a new step or complete checkpoint in between, ends a job.
- A program that cannot even begin, because it is no valid Python or an import of its main module fails, is not
  restarted after its first attempt.
- An attempt that came further than all before it gives the restarts back.

The first and the last apply to shipped runtimes that nobody has edited; a number that somebody chose is obeyed as it
is. The second also applies to runtimes that were made for single jobs. An annotation of the job or of its runtime
decides otherwise. On one machine the JobSet controller asks before it restarts; on a cluster that controller is
upstream's, so the TrainJob controller asks and ends the job.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.labels import (
    CHECKPOINT,
    DERIVED,
    DERIVED_ORIGIN,
    RUNTIME_ORIGIN,
    SHIPPED_HASH,
    SHIPPED_ORIGIN,
    STOP_ON_SAME_FAILURE,
)
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations, read_labels, read_text
from trainmaster.api.resources import CONFIG_MAPS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.training import snapshots
from trainmaster.api.training.failing import courses
from trainmaster.api.training.failing.courses import FailureCourse
from trainmaster.client.view import View
from trainmaster.client.writes import Write
from trainmaster.controllers import verdict
from trainmaster.controllers.install import compute_hash
from trainmaster.engine.draft import build_patch
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob


@dataclass(frozen=True, slots=True)
class BudgetRules:
    stops_repeats: bool = False
    stops_hopeless: bool = False
    gives_back: bool = False
    """Whether progress gives the restarts back."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands after an attempt has failed."""

    course: FailureCourse
    rules: BudgetRules
    why_not: str = ""
    """Why it is not restarted; "" if nothing speaks against it."""

    @property
    def returns_budget(self) -> bool:
        return self.rules.gives_back and self.course.progressed


NO_STANDING = Standing(FailureCourse(), BudgetRules())
"""Of a JobSet without a TrainJob."""


def judge_jobset(view: View, jobset: JobSet) -> Standing:
    """For the JobSet controller, when a Job of the current attempt has failed."""
    trainjob = _find_trainjob(view, jobset)
    if trainjob is None:
        return NO_STANDING
    failure = verdict.find_failure(view, trainjob, jobset)
    if failure is not None and failure.get("attempt", 0) != jobset.attempt:
        failure = None
    return _judge(view, trainjob, jobset, jobset.attempt, failure, _find_checkpoint(view, jobset))


def judge_failure(view: View, trainjob: TrainJob, jobset: JobSet, failure: Fields) -> Standing:
    """For the TrainJob controller on a cluster, where the JobSet may be an attempt further by now, and checkpoints are
    not known."""
    return _judge(view, trainjob, jobset, failure.get("attempt", 0), failure, "")


def _judge(
    view: View, trainjob: TrainJob, jobset: JobSet, attempt: int, failure: Fields | None, checkpoint: str
) -> Standing:
    first = jobset.first_attempt
    course = courses.follow_failure(trainjob.raw, attempt, first, failure, checkpoint)
    rules = read_rules(view, trainjob)
    is_hopeless = attempt == first and course.furthest is None and courses.is_hopeless(failure)
    ends = (rules.stops_repeats and course.is_repeated) or (rules.stops_hopeless and is_hopeless)
    return Standing(course, rules, courses.explain_end(course, failure) if ends else "")


def _find_trainjob(view: View, jobset: JobSet) -> TrainJob | None:
    owner = jobset.controller
    found = None if owner is None else view.find(TRAIN_JOBS, jobset.namespace, owner["name"])
    return None if found is None or not jobset.is_owned_by(found["metadata"]["uid"]) else TrainJob(found)


def list_notes(view: View, jobset: JobSet, standing: Standing) -> list[Write]:
    """Stores the course in the status of the TrainJob, if it is not there yet."""
    trainjob = _find_trainjob(view, jobset)
    course = standing.course
    if trainjob is None or trainjob.is_deleting or course.is_empty or course == courses.read_course(trainjob.raw):
        return []
    return [build_patch(TRAIN_JOBS, trainjob, {"status": courses.build_note(course)}, subresource="status")]


def read_rules(view: View, trainjob: TrainJob) -> BudgetRules:
    found = view.find(CONFIG_MAPS, trainjob.namespace, snapshots.get_name(trainjob.raw))
    snapshot = ObjectModel(found) if found is not None else None
    marks = snapshot.annotations if snapshot is not None and snapshot.is_owned_by(trainjob.uid) else {}
    origin = marks.get(RUNTIME_ORIGIN)
    is_shipped = origin == SHIPPED_ORIGIN
    asked = trainjob.annotations.get(STOP_ON_SAME_FAILURE) or marks.get(STOP_ON_SAME_FAILURE)
    if asked in ("true", "false"):
        return BudgetRules(asked == "true", asked == "true", is_shipped)
    return BudgetRules(is_shipped, is_shipped or origin == DERIVED_ORIGIN, is_shipped)


def describe_origin(runtime: Fields) -> Object:
    """For the metadata of a snapshot: what its runtime says about restarts. Empty for a runtime of others."""
    own, marks = read_annotations(runtime), dict[str, str]()
    if read_labels(runtime).get(DERIVED) == "true":
        marks[RUNTIME_ORIGIN] = DERIVED_ORIGIN
    elif SHIPPED_HASH in own and own[SHIPPED_HASH] == compute_hash(runtime["spec"]):
        marks[RUNTIME_ORIGIN] = SHIPPED_ORIGIN
    if STOP_ON_SAME_FAILURE in own:
        marks[STOP_ON_SAME_FAILURE] = own[STOP_ON_SAME_FAILURE]
    return {"annotations": marks} if marks else {}


def _find_checkpoint(view: View, jobset: JobSet) -> str:
    """The newest complete checkpoint when the failed Pods of the current attempt ended; "" if none is known."""
    found = ""
    for job in map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)):
        if job.attempt != jobset.restarts:
            continue
        for pod in map(Pod, view.owned(PODS, job.namespace, job.uid)):
            found = max(found, read_text(pod.find_condition(CHECKPOINT), "message"))
    return found
