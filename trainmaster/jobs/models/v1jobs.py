"""The jobs of `kubeflow.org/v1`. They control their Pods themselves, one group for each replica type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import POD_ATTEMPT
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import NOTHING, read_text
from trainmaster.api.v1jobs import frameworks
from trainmaster.api.v1jobs.frameworks import (
    JOB_NAME,
    MANAGER,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    WORKER,
    V1Framework,
)
from trainmaster.api.v1jobs.replicas import ReplicaSpec, read_replicas
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import count
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import COMPLETE, DEADLINE_EXCEEDED, FAILED, TrainingJob

CREATED, RUNNING, RESTARTING, SUCCEEDED = "Created", "Running", "Restarting", "Succeeded"
PAST_DEADLINE = "it was active longer than specified deadline"
"""The end of the message of a job that failed for this reason. As upstream, the reason in the condition is the same for
all failures."""


class V1Job(TrainingJob):
    __slots__ = ("_replicas",)

    framework: ClassVar[V1Framework]
    pod_label: ClassVar[str] = JOB_NAME
    ends: ClassVar[Mapping[str, str]] = {SUCCEEDED: COMPLETE, FAILED: FAILED}

    def __init__(self, raw: Fields) -> None:
        super().__init__(raw)
        self._replicas: dict[str, ReplicaSpec] | None = None

    @classmethod
    def find_place(cls, pod: Fields) -> PodPlace | None:
        meta = pod["metadata"]
        labels = meta.get("labels") or NOTHING
        if labels.get(OPERATOR_NAME) != cls.framework.controller or REPLICA_TYPE not in labels:
            return None
        owner = next((entry for entry in meta.get("ownerReferences") or () if entry.get("controller")), NOTHING)
        if "uid" not in owner:
            return None
        return PodPlace(
            jobset=owner["uid"],
            attempt=find_count((meta.get("annotations") or NOTHING).get(POD_ATTEMPT)) or 0,
            job=labels[REPLICA_TYPE],
            job_index=0,
            index=find_count(labels.get(REPLICA_INDEX)) or 0,
            pod=meta["name"],
            uid=meta["uid"],
        )

    @classmethod
    def choose_main_step(cls, steps: Collection[str]) -> str:
        """The type that decides about the job, otherwise the workers."""
        words = [name.lower() for name in (*cls.framework.deciding, WORKER)]
        return next((word for word in words if word in steps), min(steps, default=""))

    # Its spec

    @property
    def policy(self) -> Fields:
        """`spec.runPolicy`."""
        policy: Fields = self.spec.get("runPolicy") or NOTHING
        return policy

    @property
    def replicas(self) -> dict[str, ReplicaSpec]:
        """By type, with defaults. Kept, because a pass of the controller reads it about thirty times."""
        if self._replicas is None:
            self._replicas = read_replicas(self.framework, self.spec)
        return self._replicas

    @property
    def nodes(self) -> int | None:
        return sum(replica.count for replica in self.replicas.values())

    @property
    def is_suspended(self) -> bool:
        return bool(self.policy.get("suspend"))

    @staticmethod
    def build_suspension(suspend: bool) -> Object:
        return {"spec": {"runPolicy": {"suspend": suspend}}}

    @property
    def is_managed_here(self) -> bool:
        return bool(self.policy.get("managedBy", MANAGER) == MANAGER)

    @property
    def clean_pod_policy(self) -> str:
        """MPIJobs also have an older field."""
        return str(self.policy.get("cleanPodPolicy") or self.spec.get("cleanPodPolicy") or "None")

    @property
    def min_available(self) -> int:
        """How many Pods have to start together (`schedulingPolicy`); 0 for all."""
        return count((self.policy.get("schedulingPolicy") or NOTHING).get("minAvailable"))

    @property
    def backoff_limit(self) -> int | None:
        return self.policy.get("backoffLimit")

    # Its status

    @property
    def replica_statuses(self) -> Mapping[str, Fields]:
        statuses: Mapping[str, Fields] = self.status.get("replicaStatuses") or NOTHING
        return statuses

    @property
    def is_active(self) -> bool:
        return any(count(entry.get("active")) for entry in self.replica_statuses.values())

    @property
    def is_ready(self) -> bool:
        return self.is_true(RUNNING)

    @property
    def active_since(self) -> str:
        return str(self.status.get("startTime") or self.created_at)

    @property
    def attempt(self) -> int:
        """The number of its newest attempt: a Pod that is created now has it."""
        return self.wanted_attempt + self.restarts

    @property
    def restarts(self) -> int:
        """How many Pods were replaced because they failed, since a user restarted the job."""
        return count(self.status.get("restarts"))

    @property
    def restarting_pods(self) -> Sequence[str]:
        """Uids of failed Pods that are counted as restarts and will be deleted."""
        return self.status.get("restartingPods") or ()

    def _read_end_reason(self, condition: Fields) -> str:
        is_late = read_text(condition, "message").endswith(PAST_DEADLINE)
        return DEADLINE_EXCEEDED if is_late else super()._read_end_reason(condition)

    def read_attempts(self, jobset: JobSet | None) -> tuple[int, int, int | None]:
        return self.attempt, self.restarts, self.backoff_limit

    def decide_next_attempt(self, jobset: JobSet | None) -> int:
        return self.attempt + 1


class PyTorchJob(V1Job):
    __slots__ = ()
    framework = frameworks.PYTORCH
    gvr: ClassVar[GVR] = framework.gvr


class TFJob(V1Job):
    __slots__ = ()
    framework = frameworks.TENSORFLOW
    gvr: ClassVar[GVR] = framework.gvr


class MPIJob(V1Job):
    __slots__ = ()
    framework = frameworks.MPI
    gvr: ClassVar[GVR] = framework.gvr


class XGBoostJob(V1Job):
    __slots__ = ()
    framework = frameworks.XGBOOST
    gvr: ClassVar[GVR] = framework.gvr


class PaddleJob(V1Job):
    __slots__ = ()
    framework = frameworks.PADDLE
    gvr: ClassVar[GVR] = framework.gvr


class JAXJob(V1Job):
    __slots__ = ()
    framework = frameworks.JAX
    gvr: ClassVar[GVR] = framework.gvr


class MXJob(V1Job):
    __slots__ = ()
    framework = frameworks.MXNET
    gvr: ClassVar[GVR] = framework.gvr


MODELS: tuple[type[V1Job], ...] = (PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob, MXJob)
