"""What the Pods on each node request, and which job each of them belongs to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.api.devices import DECLARED, Device, list_leased
from trainmaster.api.pods.requests import GPU, Amounts, count_requests
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.client.view import View
from trainmaster.jobs.kinds import find_kind_and_place, get_kind_name
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod


@dataclass(frozen=True, slots=True)
class Load:
    """A Pod on a node that has not ended."""

    node: str
    namespace: str
    job: str
    """Its training job; its own name if it belongs to none."""
    kind: str
    """"" if it belongs to no training job."""
    uid: str
    requests: Amounts
    has_named_gpus: bool
    """Whether the scheduler has leased it GPUs by their ids, as ours does."""
    is_mirror: bool


def list_loads(view: View) -> Iterator[Load]:
    jobsets = {obj["metadata"]["uid"]: JobSet(obj) for obj in view.list(JOB_SETS)}
    for pod in map(Pod, view.list(PODS)):
        if pod.node and not pod.is_over:
            job, kind, uid = _read_job(pod, jobsets)
            named = bool(list_leased(pod.raw))
            yield Load(pod.node, pod.namespace, job, kind, uid, count_requests(pod.spec), named, pod.is_mirror)


def _read_job(pod: Pod, jobsets: Mapping[str, JobSet]) -> tuple[str, str, str]:
    """(name, kind, uid) of its training job; otherwise of what it belongs to, without kind and uid."""
    found = find_kind_and_place(pod.raw)
    if found is None:
        return pod.name, "", ""
    model, place = found
    member: ObjectModel | None = jobsets.get(place.jobset) if model.has_jobset else pod
    owner = None if member is None else member.controller
    if owner is None:
        return pod.name if member is None else member.name, "", ""
    return str(owner["name"]), get_kind_name(model), str(owner["uid"])


def lease_unnamed(devices: Sequence[Device], loads: Sequence[Load], leases: Mapping[str, str]) -> dict[str, str]:
    """Where a node only counts its GPUs, as on most clusters: who has as many of them. Which ones is not known."""
    free = (device.id for device in devices if device.id.startswith(DECLARED) and device.id not in leases)
    found = {}
    for load in loads:
        for _ in range(0 if load.has_named_gpus else load.requests.get(GPU, 0)):
            if (device := next(free, None)) is not None:
                found[device] = f"{load.namespace}/{load.job}"
    return found
