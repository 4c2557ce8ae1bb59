"""Pods that have outlived their Job, because somebody deleted it in the background, and are still ending.

The next Job gets the same name, and its Pods the same host names and ranks: while one of the old ones runs, no Job is
made, or two attempts of a gang would run at once. A Pod that was orphaned on purpose has no controller any more and
is nobody's concern. When the last leftover goes, its deletion wakes the JobSet.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.labels import JOBSET_NAME, JOBSET_UID
from trainmaster.api.meta import Object
from trainmaster.api.pods.phases import is_over
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.client.view import View
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.ownership import find_controller
from trainmaster.controllers.waiting import Waiting, find_annotated
from trainmaster.engine.request import Request

LEFTOVER_POD = "LeftoverPod"


def find_leftover(view: View, jobset: Object, buckets: ChildJobs) -> Waiting | None:
    meta = jobset["metadata"]
    known = buckets.uids
    for pod in view.list(PODS, meta["namespace"], {JOBSET_UID: meta["uid"]}):
        owner = find_controller(pod)
        if owner is None or owner.get("uid") in known or is_over(pod):
            continue
        name = pod["metadata"]["name"]
        return Waiting(
            LEFTOVER_POD, f'Pod "{name}" of a Job that was deleted is still ending; Jobs are made once it is gone'
        )
    return None


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """The JobSet that waits for one of its Pods to end or to go."""
    name = (pod["metadata"].get("labels") or {}).get(JOBSET_NAME)
    if not name:
        return ()
    namespace = pod["metadata"].get("namespace", "")
    jobset = view.find(JOB_SETS, namespace, name)
    waiting = None if jobset is None else find_annotated(jobset)
    return (Request(namespace, name),) if waiting is not None and waiting.get("reason") == LEFTOVER_POD else ()
