"""When a TrainJob ended, and under which runtime: what retention is counted from and decided by."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.admission.trainjobs import find_live_runtime, find_runtime
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.janitor import FINISHED, find_end
from trainmaster.api.lifecycle.policy import Policy, read_policy
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.controllers.ownership import is_terminating

COMPLETE, FAILED = FINISHED


def find_retention_runtime(view: View, trainjob: Object) -> Object | None:
    """The live runtime while it is the one that the job began with, so that a changed TTL reaches finished jobs;
    else the snapshot."""
    taken, live = find_runtime(trainjob, view), find_live_runtime(trainjob, view)
    if taken is None or live is None:
        return taken or live
    return live if taken["metadata"].get("uid") in (None, live["metadata"].get("uid")) else taken


def find_policy(view: View) -> Policy:
    return read_policy(view.find(CONFIG_MAPS, policy.NAMESPACE, policy.NAME)).policy


def is_policy(obj: Object) -> bool:
    meta = obj["metadata"]
    return (meta.get("namespace"), meta["name"]) == (policy.NAMESPACE, policy.NAME)


def list_finished(view: View, namespace: str = "") -> Iterable[Object]:
    """Those that are over and not yet on their way out."""
    for trainjob in view.list(TRAIN_JOBS, namespace):
        if find_end(trainjob) is not None and not is_terminating(trainjob):
            yield trainjob
