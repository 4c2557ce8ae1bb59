"""Determines which Pods belong to the Job: those it controls, and Pods without a controller that its selector matches.

Ownership is by uid. A Pod whose labels no longer match is released without being counted; a matching orphan is adopted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainmaster.api import labels
from trainmaster.api.formats.selectors import LabelSelector, parse_object
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations, read_fields, read_labels
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.controllers.job.facts import SMALL, PodFacts, PodFactsMemo, read_facts
from trainmaster.controllers.job.pods import find_number
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.engine.draft import build_patch
from trainmaster.engine.request import Request
from trainmaster.engine.source import map_to_owner, map_to_self
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.steps import Steps

_SHARE = 0.0001
"""The delay in seconds per Pod, about twenty times the cost of examining the Pod."""
_LONGEST = 1.0
"""The longest delay, in seconds; upstream always waits for one second."""


@dataclass(frozen=True, slots=True)
class Claims:
    pods: tuple[PodFacts, ...]
    adopted: tuple[Patch, ...]
    foreign: frozenset[str]
    """Uids of Pods that the Job controls but its selector does not match."""


def claim_pods(view: View, memo: PodFactsMemo, job: Job, serial: int) -> Steps[Claims]:
    """`serial`: the serial number for the next adopted Pod of a Job without indexes."""
    selector = parse_object(read_fields(job.spec, "selector"))
    assert selector is not None, "only an absent selector is none"
    # Both before the first step, so that a Pod which is released meanwhile is not in both.
    owned, matching = view.owned(PODS, job.namespace, job.uid), _list_matching(view, job, selector)
    if len(matching) > SMALL:
        yield
    pods = yield from memo.read(job.uid, owned)
    foreign = frozenset(_list_foreign(selector, pods))
    adopted: list[Patch] = []
    for pod in _list_orphans(matching, selector) if len(matching) != len(pods) - len(foreign) else ():
        patch = _build_adoption(job, Pod(pod), serial)
        marks = read_annotations(patch.patch)
        if labels.POD_ATTEMPT in marks:
            serial += 1
        adopted.append(patch)
        annotations = {**read_annotations(pod), **marks}
        pods.append(read_facts({**pod, "metadata": {**pod["metadata"], "annotations": annotations}}))
    return Claims(tuple(pods), tuple(adopted), foreign)


def _list_foreign(selector: LabelSelector, pods: Iterable[PodFacts]) -> Iterator[str]:
    """Uids of the Pods that do not match."""
    equal = selector.equal
    if len(selector.requirements) == 1 and labels.CONTROLLER_UID in equal:
        # Fast path for the selector that the API server generates.
        wanted = equal[labels.CONTROLLER_UID]
        return (facts.uid for facts in pods if facts.controller_label != wanted)
    return (facts.uid for facts in pods if not selector.matches(facts.pod.labels))


def _list_matching(view: View, job: Job, selector: LabelSelector) -> Sequence[Object]:
    """Pods that the selector may match, whoever controls them."""
    return view.list(PODS, job.namespace, job.spec["selector"].get("matchLabels")) if selector.requirements else ()


def _list_orphans(pods: Sequence[Object], selector: LabelSelector) -> list[Object]:
    return [raw for raw in pods if _is_orphan(Pod(raw)) and selector.matches(read_labels(raw))]


def _is_orphan(pod: Pod) -> bool:
    return pod.controller is None and not pod.is_deleting


def _build_adoption(job: Job, pod: Pod, serial: int) -> Patch:
    metadata: Object = {"ownerReferences": [*pod.owners, build_owner_reference(job.raw)]}
    if not job.is_indexed and find_number(pod, labels.POD_ATTEMPT) is None:
        metadata["annotations"] = {labels.POD_ATTEMPT: str(serial)}
    return build_patch(PODS, pod, {"metadata": metadata}, versioned=True)


def build_release(job: Job, pod: Pod) -> Patch:
    owners = [owner for owner in pod.owners if owner.get("uid") != job.uid]
    return build_patch(PODS, pod, {"metadata": {"ownerReferences": owners or None}}, versioned=True)


def gather(view: View, pod: Object) -> float:
    """Delays the pass over a large Job, to batch changes: each pass examines all of the Job's Pods."""
    owner = Pod(pod).controller
    job = view.find(JOBS, pod["metadata"].get("namespace", ""), owner["name"]) if owner else None
    return 0.0 if job is None else _decide_delay(Job(job))


def gather_own(view: View, raw: Object) -> float:
    """A change of the Job is usually the status written by its last pass, so it can wait. Suspending, resuming and
    ending the Job happen at once."""
    job = Job(raw)
    if job.is_suspended != job.is_true("Suspended"):
        return 0.0
    is_ending = job.is_true("SuccessCriteriaMet") or job.is_true("FailureTarget")
    return 0.0 if is_ending else _decide_delay(job)


def _decide_delay(job: Job) -> float:
    active = job.active
    return 0.0 if active <= SMALL else min(_LONGEST, active * _SHARE)


def map_job(view: View, raw: Object) -> Iterable[Request]:
    """The Job itself, unless it has finished and has no TTL. Pods that remain trigger their own requests."""
    job = Job(raw)
    is_kept = job.is_finished and "ttlSecondsAfterFinished" not in job.spec
    return () if is_kept else map_to_self(view, raw)


_map_to_job = map_to_owner("Job")


def map_pod(view: View, raw: Object) -> Iterable[Request]:
    """The controller of the Pod; for an orphan the Job that its label names, which may adopt it. Finished Pods of
    finished Jobs are ignored."""
    pod = Pod(raw)
    owner = pod.controller
    if owner is not None:
        is_of_interest = pod.is_active or not _has_ended(view, pod.namespace, owner)
        return _map_to_job(view, raw) if is_of_interest else ()
    name = pod.labels.get(labels.JOB_NAME) or pod.labels.get(labels.LEGACY_JOB_NAME)
    if not name or not pod.is_active:
        return ()
    return (Request(pod.namespace, name),)


def _has_ended(view: View, namespace: str, owner: Fields) -> bool:
    """Whether the owner is a finished Job."""
    found = view.find(JOBS, namespace, owner["name"])
    return found is not None and found["metadata"]["uid"] == owner["uid"] and Job(found).is_finished
