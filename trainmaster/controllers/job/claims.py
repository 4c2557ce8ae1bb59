"""Which Pods are the Job's: those it controls and, of those without a controller, the ones its selector matches.

Ownership is by uid. A Pod whose labels no longer match is let go, uncounted; an orphan that matches is taken in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.selectors import LabelSelector, parse_object
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.controllers.job.books import is_indexed
from trainmaster.controllers.job.pods import find_key, is_active
from trainmaster.controllers.ownership import build_owner_reference, find_controller, is_terminating
from trainmaster.engine.request import Request
from trainmaster.engine.source import map_to_owner

_SMALL = 32
"""Jobs of so many Pods are looked at at once, whenever one of them changes."""
_SHARE = 0.00025
"""Seconds per Pod: some ten times of what looking at it costs."""
_LONGEST = 1.0
"""Upstream gathers for one second, always."""


@dataclass(frozen=True, slots=True)
class Claims:
    pods: tuple[Object, ...]
    adopted: tuple[Patch, ...]
    foreign: frozenset[str]
    """Uids of Pods that the Job controls and its selector does not match."""


def claim_pods(view: View, job: Object, serial: int) -> Claims:
    """`serial`: the number that the next adopted Pod of a Job without indexes gets."""
    meta = job["metadata"]
    selector = parse_object(job["spec"].get("selector") or {})
    assert selector is not None, "only an absent selector is none"
    owned = [pod for pod in view.owned(PODS, meta["uid"]) if pod["metadata"].get("namespace") == meta["namespace"]]
    foreign = frozenset(pod["metadata"]["uid"] for pod in owned if not _matches(selector, pod))
    adopted: list[Patch] = []
    pods = list(owned)
    for pod in _list_orphans(view, job, selector):
        patch = _build_adoption(job, pod, serial)
        if labels.POD_ATTEMPT in patch["metadata"].get("annotations", ()):
            serial += 1
        adopted.append(Patch(PODS, meta["namespace"], pod["metadata"]["name"], patch))
        annotations = {**(pod["metadata"].get("annotations") or {}), **patch["metadata"].get("annotations", {})}
        pods.append({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})
    return Claims(tuple(pods), tuple(adopted), foreign)


def _matches(selector: LabelSelector, pod: Object) -> bool:
    return selector.matches(pod["metadata"].get("labels") or {})


def _list_orphans(view: View, job: Object, selector: LabelSelector) -> list[Object]:
    if not selector.requirements:
        return []
    wanted = job["spec"]["selector"].get("matchLabels")
    found = view.list(PODS, job["metadata"]["namespace"], wanted)
    return [
        pod for pod in found if find_controller(pod) is None and not is_terminating(pod) and _matches(selector, pod)
    ]


def _build_adoption(job: Object, pod: Object, serial: int) -> Object:
    meta = pod["metadata"]
    owners = [*(meta.get("ownerReferences") or ()), build_owner_reference(job)]
    head = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "ownerReferences": owners}
    if not is_indexed(job) and find_key(pod, indexed=False) is None:
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
    active = int(((job or {}).get("status") or {}).get("active") or 0)
    return 0.0 if active <= _SMALL else min(_LONGEST, active * _SHARE)


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """A Pod wakes its controller; an orphan wakes the Job that its label names, which may take it in."""
    if find_controller(pod) is not None:
        return map_to_owner("Job")(view, pod)
    own = pod["metadata"].get("labels") or {}
    name = own.get(labels.JOB_NAME) or own.get(labels.LEGACY_JOB_NAME)
    if not name or not is_active(pod):
        return ()
    return (Request(pod["metadata"].get("namespace", ""), name),)
