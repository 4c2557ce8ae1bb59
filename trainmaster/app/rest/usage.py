"""What the REST API shows of the use of Pods: in a home measured at the node, elsewhere asked for as the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import PodMeasurement, measure_pods
from trainmaster.rest.contract import UsageReads

if TYPE_CHECKING:
    from trainmaster.app.control_plane import UsageAccess


def build_usage(access: UsageAccess) -> UsageReads:
    async def measure(client: Client, job: TrainingJob, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
        return await access.measure(pods)

    return UsageReads(measure, access.list_pending)


async def ask_for_usage(client: Client, job: TrainingJob, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
    """As the API of metrics says it; nothing if there is none, or the caller may not read it."""
    try:
        found = await measure_pods(client, job.namespace, ListOptions(label_selector=f"{job.pod_label}={job.name}"))
    except StatusError as error:
        if error.code not in (403, 404, 503):
            raise
        return {}
    return {pod.uid: use for pod in pods if (use := found.get((pod.namespace, pod.name))) is not None}
