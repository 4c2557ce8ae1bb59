"""Gangs for the coscheduling plugin of kube-scheduler: a label on every Pod and a PodGroup.

Operator mode only. In embedded mode our own scheduler starts gangs as a whole, so nothing would read the PodGroup.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import COSCHEDULING_POD_GROUPS
from trainmaster.controllers.frameworks.contract import Companion, Injection, Training
from trainmaster.controllers.frameworks.gangs import sum_members, sum_requests

POD_LABEL = "scheduling.x-k8s.io/pod-group"
_TIMEOUT_SECONDS = 60


def inject(training: Training, policy: Fields, jobset: Object) -> Injection:
    def make() -> Object:
        return {
            "spec": {
                "minMember": sum_members(training.jobs, training.counts),
                "minResources": sum_requests(training.jobs, training.counts),
                "scheduleTimeoutSeconds": policy.get("scheduleTimeoutSeconds", _TIMEOUT_SECONDS),
            }
        }

    group = Companion(COSCHEDULING_POD_GROUPS, "PodGroup", training.name, make)
    return Injection(companions=(group,), pod_labels={POD_LABEL: training.name})
