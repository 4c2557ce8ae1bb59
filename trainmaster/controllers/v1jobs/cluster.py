"""The part of a pass that applies to clusters only: the PodGroup of a job, the autoscaler of a PyTorchJob, and what
kubelets say about Pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import HORIZONTAL_POD_AUTOSCALERS
from trainmaster.api.v1jobs.frameworks import MPI, PYTORCH
from trainmaster.api.v1jobs.replicas import ReplicaSpec
from trainmaster.client.writes import Create
from trainmaster.controllers.last_words import keep_last_words
from trainmaster.controllers.v1jobs import autoscaling, gangs
from trainmaster.controllers.v1jobs.claims import V1Children
from trainmaster.controllers.v1jobs.contract import V1Cluster
from trainmaster.controllers.v1jobs.draft import V1JobDraft
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.draft import build_delete, build_patch
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import V1Job
from trainmaster.jobs.troubles import UNSCHEDULABLE, find_trouble

_OTHER_SCHEDULER = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"


class V1ClusterPass:
    """Adds to the draft of a pass. On one machine (`cluster` is None) it does nothing."""

    def __init__(self, job: V1Job, children: V1Children, draft: V1JobDraft, cluster: V1Cluster | None) -> None:
        self._job = job
        self._children = children
        self._draft = draft
        self._cluster = cluster
        self._pod_groups = None if cluster is None else cluster.pod_groups

    @property
    def queued(self) -> Waiting | None:
        """Why no Pod may be created yet, if that depends on the PodGroup."""
        if self._cluster is None or self._pod_groups is None:
            return None
        return gangs.find_queued(self._cluster, self._children.find(self._pod_groups, self._job.name))

    def ensure(self) -> Waiting | None:
        """Creates and updates the objects. Returns what prevents that."""
        return self._ensure_autoscaler() or self._ensure_pod_group()

    def _ensure_pod_group(self) -> Waiting | None:
        if self._cluster is None or self._pod_groups is None:
            return None
        wanted = gangs.build_pod_group(self._job, self._cluster, self._children.get_priority)
        return self._ensure(self._pod_groups, wanted, gangs.build_change)

    def _ensure_autoscaler(self) -> Waiting | None:
        if self._cluster is None or self._job.framework is not PYTORCH:
            return None
        wanted = autoscaling.build_autoscaler(self._job)
        if wanted is None:
            self._remove(HORIZONTAL_POD_AUTOSCALERS)
            return None
        return self._ensure(HORIZONTAL_POD_AUTOSCALERS, wanted, autoscaling.build_change)

    def _ensure(
        self, gvr: GVR, wanted: Object, build_change: Callable[[ObjectModel, Object], Object]
    ) -> Waiting | None:
        found = self._children.find(gvr, self._job.name)
        if found is None:
            self._draft.write(Create(gvr, wanted))
            return None
        if found.is_deleting or not found.is_owned_by(self._job.uid):
            return self._children.explain_taken(gvr, found)
        change = build_change(found, wanted)
        if change:
            self._draft.write(build_patch(gvr, found, change, versioned=True))
        return None

    def prepare_pod(self, pod: Object, replica: ReplicaSpec) -> None:
        if self._cluster is not None and self._cluster.logs_as_messages:
            keep_last_words(pod["spec"])
        if self._cluster is None or self._pod_groups is None:
            return
        if gangs.names_other_scheduler(replica, self._cluster):
            reason = "SettedPodTemplateSchedulerName" if self._job.framework is MPI else "SetPodTemplateSchedulerName"
            self._draft.note(self._job, reason, _OTHER_SCHEDULER, warning=True)
        gangs.decorate(pod, self._job, replica, self._cluster)

    def find_trouble(self, pods: Sequence[Pod]) -> Waiting | None:
        """On one machine, the node reports everything else in annotations."""
        trouble = find_trouble(pods)
        if trouble is None or (self._cluster is None and trouble.reason != UNSCHEDULABLE):
            return None
        return Waiting(trouble.reason, trouble.message)

    def release(self) -> None:
        """After the end of the job. The autoscaler stays as long as the job, as upstream."""
        if self._pod_groups is not None and self._remove(self._pod_groups):
            self._draft.note(self._job, "JobTerminated", "Job has been terminated. Deleting PodGroup")
            self._draft.note(self._job, "SuccessfulDeletePodGroup", f"Deleted PodGroup: {self._job.name}")

    def suspend(self) -> None:
        self.release()
        if self._cluster is not None and self._job.framework is PYTORCH:
            self._remove(HORIZONTAL_POD_AUTOSCALERS)

    def _remove(self, gvr: GVR) -> bool:
        found = self._children.find(gvr, self._job.name)
        if found is None or found.is_deleting or not found.is_owned_by(self._job.uid):
            return False
        self._draft.write(build_delete(gvr, found))
        return True
