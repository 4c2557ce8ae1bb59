"""Gangs for Volcano: an annotation on every Pod and a PodGroup with queue, priority and topology.

Operator mode only, like `coscheduling`. The queue is an annotation of the JobSet, which a runtime sets and a TrainJob
can override.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import VOLCANO_POD_GROUPS
from trainmaster.api.training.steps import get_pod
from trainmaster.controllers.frameworks.contract import Companion, Injection, Training
from trainmaster.controllers.frameworks.gangs import sum_members, sum_requests

POD_ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


def inject(training: Training, policy: Fields, jobset: Object) -> Injection:
    def make() -> Object:
        spec: Object = {
            "minMember": sum_members(training.jobs, training.counts),
            "minResources": sum_requests(training.jobs, training.counts),
        }
        queue = read_annotations(jobset).get(QUEUE_ANNOTATION)
        if queue:
            spec["queue"] = queue
        priorities = [get_pod(job).get("priorityClassName") for job in training.jobs]
        named = [priority for priority in priorities if priority]
        if named:
            spec["priorityClassName"] = named[-1]
        topology = policy.get("networkTopology")
        if topology:
            spec["networkTopology"] = {name: topology[name] for name in sorted(topology)}
        return {"spec": spec}

    group = Companion(VOLCANO_POD_GROUPS, "PodGroup", training.name, make)
    return Injection(companions=(group,), pod_annotations={POD_ANNOTATION: training.name})
