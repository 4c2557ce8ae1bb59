"""What a cluster may have for v1 jobs and one machine does not: an autoscaler, and a scheduler that reads PodGroups."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.meta import GVR
from trainmaster.api.resources import COSCHEDULING_POD_GROUPS, HORIZONTAL_POD_AUTOSCALERS, VOLCANO_POD_GROUPS
from trainmaster.jobs.models.v1jobs import PyTorchJob, V1Job

_VOLCANO = "volcano"


@dataclass(frozen=True, slots=True)
class V1Cluster:
    gang_scheduler: str = ""
    """As upstream's `--gang-scheduler-name`: "" for none, `volcano`, or a scheduler with the coscheduling plugin."""
    logs_as_messages: bool = False
    """As in `frameworks.contract.FrameworkContext`."""

    @property
    def is_volcano(self) -> bool:
        return self.gang_scheduler.lower() == _VOLCANO

    @property
    def scheduler_name(self) -> str:
        """In the spec of Pods."""
        return _VOLCANO if self.is_volcano else self.gang_scheduler

    @property
    def pod_groups(self) -> GVR | None:
        """None: jobs get no PodGroup."""
        if not self.gang_scheduler:
            return None
        return VOLCANO_POD_GROUPS if self.is_volcano else COSCHEDULING_POD_GROUPS

    def list_kinds(self, model: type[V1Job]) -> list[GVR]:
        """What is created for such a job besides the objects that it also has on one machine."""
        kinds = [] if self.pod_groups is None else [self.pod_groups]
        return [*kinds, HORIZONTAL_POD_AUTOSCALERS] if model is PyTorchJob else kinds
