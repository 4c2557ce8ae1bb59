"""Which Pods are the Job's: those it controls and, of those without a controller, the ones its selector matches.

Ownership is by uid. A Pod whose labels no longer match is let go, uncounted; an orphan that matches is taken in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmaster.api import labels
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.selectors import LabelSelector, parse_object
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.controllers.job.books import is_indexed
from trainmaster.controllers.job.facts import SMALL, PodFacts, PodFactsMemo, read_facts
from trainmaster.controllers.job.pods import find_number, is_active
from trainmaster.controllers.ownership import build_owner_reference, find_controller, is_terminating
from trainmaster.engine.request import Request
from trainmaster.engine.source import map_to_owner, map_to_self

_SHARE = 0.0001
"""Seconds per Pod: some twenty times of what looking at it costs."""
_LONGEST = 1.0
"""Upstream gathers for one second, always."""


@dataclass(frozen=True, slots=True)
class Claims:
    pods: tuple[PodFacts, ...]
    adopted: tuple[Patch, ...]
    foreign: frozenset[str]
    """Uids of Pods that the Job controls and its selector does not match."""


def claim_pods(view: View, memo: PodFactsMemo, job: Object, serial: int) -> Claims:
    """`serial`: the number that the next adopted Pod of a Job without indexes gets."""
    meta = job["metadata"]
    selector = parse_object(job["spec"].get("selector") or {})
    assert selector is not None, "only an absent selector is none"
    namespace = meta["namespace"]
    pods = [*memo.read(meta["uid"], view.owned(PODS, namespace, meta["uid"]))]
    foreign = frozenset(_list_foreign(selector, pods))
    adopted: list[Patch] = []
    for pod in _list_orphans(view, job, selector, len(pods) - len(foreign)):
        patch = _build_adoption(job, pod, serial)
        if labels.POD_ATTEMPT in patch["metadata"].get("annotations", ()):
            serial += 1
        adopted.append(Patch(PODS, namespace, pod["metadata"]["name"], patch))
        annotations = {**(pod["metadata"].get("annotations") or {}), **patch["metadata"].get("annotations", {})}
        pods.append(read_facts({**pod, "metadata": {**pod["metadata"], "annotations": annotations}}))
    return Claims(tuple(pods), tuple(adopted), foreign)


def _list_foreign(selector: LabelSelector, pods: Iterable[PodFacts]) -> Iterator[str]:
    """Uids of those that do not match."""
    equal = selector.equal
    if len(selector.requirements) == 1 and labels.CONTROLLER_UID in equal:
        # The usual selector.
        wanted = equal[labels.CONTROLLER_UID]
        return (facts.uid for facts in pods if facts.controller_label != wanted)
    return (facts.uid for facts in pods if not _matches(selector, facts.pod))


def _matches(selector: LabelSelector, pod: Object) -> bool:
    return selector.matches(pod["metadata"].get("labels") or {})


def _list_orphans(view: View, job: Object, selector: LabelSelector, own: int) -> list[Object]:
    """`own`: how many Pods the Job controls that match."""
    if not selector.requirements:
        return []
    wanted = job["spec"]["selector"].get("matchLabels")
    found = view.list(PODS, job["metadata"]["namespace"], wanted)
    if len(found) == own:
        return []
    return [
        pod for pod in found if find_controller(pod) is None and not is_terminating(pod) and _matches(selector, pod)
    ]


def _build_adoption(job: Object, pod: Object, serial: int) -> Object:
    meta = pod["metadata"]
    owners = [*(meta.get("ownerReferences") or ()), build_owner_reference(job)]
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "ownerReferences": owners}
    if not is_indexed(job) and find_number(pod, labels.POD_ATTEMPT) is None:
        head["annotations"] = {labels.POD_ATTEMPT: str(serial)}
    return {"metadata": head}


def build_release(job: Object, pod: Object) -> Patch:
    meta, uid = pod["metadata"], job["metadata"]["uid"]
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("uid") != uid]
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "ownerReferences": owners or None}
    return Patch(PODS, meta["namespace"], meta["name"], {"metadata": head})


def gather(view: View, pod: Object) -> float:
    """A look at a large Job costs as much as all its Pods together: what they report is gathered for a moment."""
    owner = find_controller(pod)
    job = view.find(JOBS, pod["metadata"].get("namespace", ""), owner["name"]) if owner else None
    return 0.0 if job is None else _decide_delay(job)


def gather_own(view: View, job: Object) -> float:
    """A change of the Job itself is mostly the status that its last pass wrote. What a person has asked for, and an
    end that was decided, does not wait."""
    conditions = list_conditions(job)
    if bool(job["spec"].get("suspend")) != is_true(conditions, "Suspended"):
        return 0.0
    is_ending = is_true(conditions, "SuccessCriteriaMet") or is_true(conditions, "FailureTarget")
    return 0.0 if is_ending else _decide_delay(job)


def _decide_delay(job: Object) -> float:
    active = int((job.get("status") or {}).get("active") or 0)
    return 0.0 if active <= SMALL else min(_LONGEST, active * _SHARE)


def is_finished(job: Object) -> bool:
    conditions = list_conditions(job)
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def map_job(view: View, job: Object) -> Iterable[Request]:
    """Itself, unless it has ended and may stay: Pods that are left of it wake it."""
    is_kept = is_finished(job) and "ttlSecondsAfterFinished" not in job["spec"]
    return () if is_kept else map_to_self(view, job)


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """A Pod wakes its controller; an orphan wakes the Job that its label names, which may take it in. A Pod that has
    ended is of no interest to a Job that has."""
    owner = find_controller(pod)
    if owner is not None:
        job = view.find(JOBS, pod["metadata"].get("namespace", ""), owner["name"])
        is_over = job is not None and job["metadata"]["uid"] == owner["uid"] and is_finished(job)
        return () if is_over and not is_active(pod) else map_to_owner("Job")(view, pod)
    own = pod["metadata"].get("labels") or {}
    name = own.get(labels.JOB_NAME) or own.get(labels.LEGACY_JOB_NAME)
    if not name or not is_active(pod):
        return ()
    return (Request(pod["metadata"].get("namespace", ""), name),)
