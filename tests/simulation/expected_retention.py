"""An independent computation of how long finished TrainJobs are kept, for comparison with the product.

`SeenState` records what the retention controllers saw before they acted, because their view may lag. The checks are in
`retaining.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.retention_plans import ENFORCED_ANNOTATION, TTL_ANNOTATION
from tests.simulation.timing import RETENTION, find_end, find_verdict_time
from trainmaster.api.lifecycle import policy
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS
from trainmaster.client.view import View
from trainmaster.engine.request import Request
from trainmaster.kit.clock import parse_time

LIMITS = "history-limits"
"""The controller of history limits; those of TTLs are in `timing.RETENTION`."""
_KEPT = {"successfulJobsHistoryLimit": ("Complete", "Succeeded"), "failedJobsHistoryLimit": ("Failed",)}


def find_term(trainjob: Object, runtime: Object | None, data: Mapping[str, str]) -> int | None:
    """Seconds that a finished job is kept; None: forever. `data`: the data of the installation's policy."""
    spec, notes = trainjob["spec"], trainjob["metadata"].get("annotations") or {}
    asked = [
        spec.get("ttlSecondsAfterFinished"),
        (spec.get("cleanupPolicy") or {}).get("ttlSecondsAfterFinished"),
        (spec.get("runPolicy") or {}).get("ttlSecondsAfterFinished"),
        notes.get(TTL_ANNOTATION),
    ]
    own = next((int(value) for value in asked if value is not None), None)
    above: int | None = (runtime or {}).get("spec", {}).get("ttlSecondsAfterFinished")
    insists = ((runtime or {}).get("metadata", {}).get("annotations") or {}).get(ENFORCED_ANNOTATION) == "true"
    text = "0" if data.get("jobRetentionPolicy") == "delete_on_completion" else None
    house = data.get("ttlSecondsAfterFinished", text)
    most: list[int] = [above] if insists and above is not None else []
    most += [int(house)] if house is not None and data.get("ttlEnforced") == "true" else []
    if own is not None:
        return min([own, *most])
    if most:
        return min(most)
    return above if above is not None else None if house is None else int(house)


def list_doomed(jobs: Sequence[Object], data: Mapping[str, str]) -> set[str]:
    """Uids of finished jobs of one namespace that exceed its history limits."""
    doomed: set[str] = set()
    for key, verdicts in _KEPT.items():
        if key not in data:
            continue
        ended = sorted(
            (parse_time(end[2]), obj["metadata"]["name"], obj["metadata"]["uid"])
            for obj in jobs
            for verdict in verdicts
            if (end := find_end(obj, verdict)) is not None and "deletionTimestamp" not in obj["metadata"]
        )
        doomed |= {uid for _, _, uid in ended[: max(0, len(ended) - int(data[key]))]}
    return doomed


@dataclass
class SeenState:
    """What the retention controllers saw, by uid."""

    shown: dict[str, tuple[Object | None, Mapping[str, str]]] = field(default_factory=dict)
    """The runtime and the policy's data of each finished job, as last seen."""
    doomed: set[str] = field(default_factory=set)
    """Jobs over the limits, as last seen."""
    ever_doomed: set[str] = field(default_factory=set)
    records: Mapping[str, str] | None = None
    """With a history: uid to the recorded end."""
    moments: Mapping[str, float] = field(default_factory=dict)
    """When each record was written."""

    def look(self, controller: str, view: View, request: Request) -> None:
        gvr = RETENTION.get(controller)
        if gvr is None and controller != LIMITS:
            return
        found = view.find(CONFIG_MAPS, policy.NAMESPACE, policy.NAME)
        data: Mapping[str, str] = (found or {}).get("data") or {}
        if gvr is None:
            jobs = [job for kind in RETENTION.values() for job in view.list(kind, request.name)]
            self.doomed = list_doomed(jobs, data)
            self.ever_doomed |= self.doomed
            return
        job = view.find(gvr, request.namespace, request.name)
        if job is not None and find_verdict_time(job) is not None:
            name = (job["spec"].get("runtimeRef") or {}).get("name")
            runtime = view.find(CLUSTER_TRAINING_RUNTIMES, "", name) if name else None
            self.shown[job["metadata"]["uid"]] = (runtime, data)
