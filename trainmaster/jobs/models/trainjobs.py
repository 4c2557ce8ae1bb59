"""A TrainJob: a training job whose Pods are created by a JobSet, from the template of a runtime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import (
    COMPLETION_INDEX,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
)
from trainmaster.api.meta import GVR, Fields
from trainmaster.api.reading import NOTHING
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.training.restarts import decide_next, read_first
from trainmaster.api.training.steps import NODE
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob


class TrainJob(TrainingJob):
    __slots__ = ()

    gvr: ClassVar[GVR] = TRAIN_JOBS
    pod_label: ClassVar[str] = JOBSET_NAME
    has_jobset: ClassVar[bool] = True

    @classmethod
    def find_place(cls, pod: Fields) -> PodPlace | None:
        meta = pod["metadata"]
        labels = meta.get("labels") or NOTHING
        if JOBSET_UID not in labels or REPLICATED_JOB_NAME not in labels:
            return None
        index = labels.get(COMPLETION_INDEX) or (meta.get("annotations") or NOTHING).get(COMPLETION_INDEX)
        return PodPlace(
            jobset=labels[JOBSET_UID],
            attempt=read_first(pod) + (find_count(labels.get(RESTART_ATTEMPT)) or 0),
            job=labels[REPLICATED_JOB_NAME],
            job_index=find_count(labels.get(JOB_INDEX)) or 0,
            index=find_count(index) or 0,
            pod=meta["name"],
        )

    @classmethod
    def choose_main_step(cls, steps: Collection[str]) -> str:
        return NODE if NODE in steps else min(steps, default="")

    @property
    def label(self) -> str:
        return self.name

    # Its spec

    @property
    def trainer(self) -> Fields:
        """`spec.trainer`."""
        trainer: Fields = self.spec.get("trainer") or NOTHING
        return trainer

    @property
    def nodes(self) -> int | None:
        """None if the runtime decides."""
        nodes = self.trainer.get("numNodes")
        return nodes if isinstance(nodes, int) else None

    @property
    def runtime(self) -> Fields:
        """`spec.runtimeRef`."""
        reference: Fields = self.spec.get("runtimeRef") or NOTHING
        return reference

    @property
    def runtime_key(self) -> tuple[str, str]:
        """(namespace or "" for a ClusterTrainingRuntime, name)"""
        is_namespaced = self.runtime.get("kind") == "TrainingRuntime"
        return self.namespace if is_namespaced else "", str(self.runtime.get("name", ""))

    # Its status

    @property
    def steps(self) -> Sequence[Fields]:
        """`status.jobsStatus`: how many Jobs of each step are ready, active or finished."""
        return self.status.get("jobsStatus") or ()

    @property
    def is_active(self) -> bool:
        return any(step.get("active") for step in self.steps)

    @property
    def is_ready(self) -> bool:
        return any(step.get("ready") for step in self.steps)

    def decide_next_attempt(self, jobset: JobSet | None) -> int:
        return decide_next(self.raw, None if jobset is None else jobset.raw)

    def read_attempts(self, jobset: JobSet | None) -> tuple[int, int, int | None]:
        return (0, 0, None) if jobset is None else (jobset.attempt, jobset.spent_restarts, jobset.max_restarts)
