"""Ends a job whose restarts do not help (`controllers.budget`), on a cluster.

There JobSets are restarted by upstream's controller, which knows only a number. The course of the failures is kept in
the TrainJob's status with each failure that is seen; the pass that gives up stores the verdict, and the following ones
delete the JobSet for as long as it exists, as after an exceeded deadline. On one machine the JobSet's own controller
asks before it restarts.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.training.failing import courses
from trainmaster.client.view import View
from trainmaster.controllers import budget
from trainmaster.controllers.failures import describe
from trainmaster.controllers.trainjob.status import fail, has_failed_for
from trainmaster.engine.draft import ObjectDraft
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

_REASONS = (courses.REPEATED, courses.HOPELESS)


def give_up(
    draft: ObjectDraft, view: View, trainjob: TrainJob, jobset: JobSet | None, failure: Fields | None, now: Now
) -> str:
    """Keeps the course; if the job is given up, also fails it. Returns the sentence then."""
    if jobset is None or failure is None or jobset.is_finished or jobset.is_suspended:
        return ""
    standing = budget.judge_failure(view, trainjob, jobset, failure)
    if not standing.course.is_empty:
        draft.status["repeated"] = courses.to_wire(standing.course)
    if not standing.why_not:
        return ""
    draft.status["failure"] = dict(failure)
    text = f"{standing.why_not}; {describe(failure)}"
    if standing.course.is_repeated:
        fail(draft, courses.REPEATED, text, now.wall)
    else:
        fail(draft, courses.HOPELESS, text, now.wall)
    return standing.why_not


def is_given_up(trainjob: TrainJob, jobset: JobSet) -> bool:
    """Whether the JobSet goes on although the job was given up."""
    return has_failed_for(trainjob, *_REASONS) and not jobset.is_finished
