"""Finds terminating Pods whose Job is gone, because somebody deleted it with background propagation.

A new Job gets the same name, and its Pods the same host names and ranks. No Job is created while an old Pod is running;
otherwise two attempts of a gang would run at once. Pods that were orphaned on purpose have no controller and are
ignored. The deletion of the last such Pod triggers a pass over the JobSet.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.client.view import View
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.waiting import Waiting, find_annotated
from trainmaster.engine.request import Request
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod

LEFTOVER_POD = "LeftoverPod"


def find_leftover(view: View, jobset: JobSet, buckets: ChildJobs) -> Waiting | None:
    known = buckets.uids
    for pod in map(Pod, view.list(PODS, jobset.namespace, {JOBSET_UID: jobset.uid})):
        owner = pod.controller
        if owner is None or owner.get("uid") in known or pod.is_over:
            continue
        return Waiting(
            LEFTOVER_POD, f'Pod "{pod.name}" of a Job that was deleted is still ending; Jobs are made once it is gone'
        )
    return None


def map_pod(view: View, obj: Object) -> Iterable[Request]:
    """The JobSet that waits for one of its Pods to end or to be deleted."""
    pod = Pod(obj)
    name = pod.jobset
    if not name:
        return ()
    jobset = view.find(JOB_SETS, pod.namespace, name)
    waiting = None if jobset is None else find_annotated(jobset)
    return (Request(pod.namespace, name),) if waiting is not None and waiting.get("reason") == LEFTOVER_POD else ()
