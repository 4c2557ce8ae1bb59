"""The kinds of jobs that a drain suspends: training jobs, and JobSets and Jobs that belong to nobody.

A job is suspended through its own suspend field, so its controller does the rest: its Pods are asked to stop, get their
grace period, and are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.labels import JOBSET_NAME, JOBSET_UID
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_labels
from trainmaster.api.resources import JOB_SETS, JOBS, PODS
from trainmaster.client.view import View
from trainmaster.controllers.scheduler.ledger import V1_MODELS
from trainmaster.controllers.scheduler.shapes import GangShape, read_shape, read_v1_shape
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.v1jobs import V1Job

Drainable: TypeAlias = TrainingJob | JobSet | Job


@dataclass(frozen=True, slots=True)
class DrainedKind:
    gvr: GVR
    model: type[Drainable]

    @property
    def name(self) -> str:
        return self.gvr.plural

    @property
    def is_training(self) -> bool:
        """Otherwise only jobs without a controller concern a drain: those of others follow their controller."""
        return issubclass(self.model, TrainingJob)

    def build_suspension(self, suspend: bool) -> Object:
        if issubclass(self.model, TrainingJob):
            return self.model.build_suspension(suspend)
        return {"spec": {"suspend": suspend}}

    def list_pods(self, view: View, job: Drainable) -> Sequence[Object]:
        if self.model is Job or issubclass(self.model, V1Job):
            return view.owned(PODS, job.namespace, job.uid)
        found = view.find(JOB_SETS, job.namespace, job.name)
        if found is None:
            return ()
        uid = found["metadata"]["uid"]
        pods = view.list(PODS, job.namespace, {JOBSET_NAME: job.name})
        return [pod for pod in pods if read_labels(pod).get(JOBSET_UID) == uid]

    def find_gang(self, view: View, job: Drainable) -> tuple[GVR, ObjectModel, GangShape] | None:
        """The object in which the scheduler sees the job as one: its JobSet or itself. None for a Job, whose Pods are
        scheduled one by one, and while there is no JobSet."""
        if issubclass(self.model, V1Job):
            return self.gvr, job, read_v1_shape(V1_MODELS[self.gvr](job.raw))
        if self.model is Job:
            return None
        found = view.find(JOB_SETS, job.namespace, job.name)
        if found is None or (self.is_training and not ObjectModel(found).is_owned_by(job.uid)):
            return None
        jobset = JobSet(found)
        return JOB_SETS, jobset, read_shape(jobset)


def has_pod_on_machine(pods: Sequence[Fields]) -> bool:
    """Whether any of them is bound and nobody has asked it to stop yet."""
    return any(pod.node and pod.is_active for pod in map(Pod, pods))


DRAINED_KINDS: Sequence[DrainedKind] = (
    *(DrainedKind(model.gvr, model) for model in TRAINING_KINDS.values()),
    DrainedKind(JOB_SETS, JobSet),
    DrainedKind(JOBS, Job),
)
