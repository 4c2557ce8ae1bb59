"""A Workload of Kueue: what Kueue thinks of one job in one of its queues."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.labels import QUEUED_JOB_UID
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.jobs.models.objects import ObjectModel

QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED = "QuotaReserved", "Admitted", "Evicted", "Preempted"
READY = "Ready"
"""The state of an admission check that agrees."""


class QueuedWorkload(ObjectModel):
    __slots__ = ()

    @property
    def job_uid(self) -> str:
        return self.labels.get(QUEUED_JOB_UID, "")

    @property
    def job_label(self) -> str:
        """NAMESPACE/NAME of its job; its own name if it belongs to none."""
        owners = list_items(self.meta, "ownerReferences")
        return f"{self.namespace}/{owners[0]['name'] if owners else self.name}"

    @property
    def queue(self) -> str:
        """The name of its LocalQueue."""
        return read_text(self.spec, "queueName")

    @property
    def cluster_queue(self) -> str:
        """The ClusterQueue that has reserved quota for it; "" if none has."""
        return read_text(self.status, "admission", "clusterQueue")

    @property
    def is_active(self) -> bool:
        """Whether Kueue may admit it."""
        return self.spec.get("active") is not False

    @property
    def waiting_checks(self) -> Sequence[Fields]:
        """The admission checks that have not agreed."""
        return [check for check in list_items(self.status, "admissionChecks") if check.get("state") != READY]

    @property
    def requeue(self) -> tuple[int, str]:
        """(how often it was put back into the queue after an eviction, until when it is not tried again)"""
        state = read_fields(self.status, "requeueState")
        return int(state.get("count") or 0), read_text(state, "requeueAt")
