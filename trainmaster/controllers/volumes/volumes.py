"""One pass over a PersistentVolume: its phase, and what happens to it after its claim is deleted.

A volume is Available without a claim, Bound while its claim exists, and Released afterwards. A Released volume of ours
with reclaim policy Delete is deleted once no Pod uses it; the node removes the directory before the object disappears
(it has a finalizer). Nothing else is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from trainmaster.client.view import View
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.volumes.claims import REPORTER, build_reference
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import ObjectDraft, build_delete, build_patch
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.volumes import PersistentVolume, PersistentVolumeClaim
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    raw = view.find(PERSISTENT_VOLUMES, "", request.name)
    if raw is None:
        return NOTHING
    volume = PersistentVolume(raw)
    if volume.is_deleting or refusals:
        return NOTHING
    draft = ObjectDraft(PERSISTENT_VOLUMES, volume, versioned=False)
    phase = _decide(view, volume, draft)
    if phase != volume.phase:
        draft.status |= {"phase": phase, "lastPhaseTransitionTime": format_time(now.wall)}
    return draft.build_plan()


def _decide(view: View, volume: PersistentVolume, draft: ObjectDraft) -> str:
    """Returns the volume's phase, and adds any other writes to the draft."""
    reference = volume.claim
    if not reference:
        return "Available"
    found = view.find(PERSISTENT_VOLUME_CLAIMS, reference.get("namespace", ""), reference.get("name", ""))
    claim = PersistentVolumeClaim(found) if found is not None else None
    if claim is not None and reference.get("uid", claim.uid) == claim.uid:
        return _follow(volume, claim, draft)
    if not reference.get("uid"):
        return "Available"
    if volume.phase == "Released" and _goes_with_claim(volume) and not _list_users(view, reference):
        draft.write(build_delete(PERSISTENT_VOLUMES, volume, versioned=True))
    return "Released"


def _follow(volume: PersistentVolume, claim: PersistentVolumeClaim, draft: ObjectDraft) -> str:
    if claim.volume != volume.name:
        return volume.phase
    if volume.claim.get("uid") != claim.uid:
        draft.write(build_patch(PERSISTENT_VOLUMES, volume, {"spec": {"claimRef": build_reference(claim)}}))
    return "Bound"


def _goes_with_claim(volume: PersistentVolume) -> bool:
    return volume.is_ours and volume.spec.get("persistentVolumeReclaimPolicy") == "Delete"


def _list_users(view: View, reference: Fields) -> list[str]:
    """Pods that mount the claim and may still be running."""
    pods = map(Pod, view.list(PODS, reference["namespace"]))
    return [pod.name for pod in pods if reference["name"] in list_claims(pod) and not pod.is_over]


def list_claims(pod: Pod) -> set[str]:
    sources = (volume.get("persistentVolumeClaim") for volume in pod.volumes)
    return {source["claimName"] for source in sources if source}


def map_claim(view: View, claim: Object) -> Iterable[Request]:
    meta = claim["metadata"]
    return _list_named(view, meta["namespace"], {meta["name"]})


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """Only the end of a Pod matters, and most Pods have no claims."""
    names = list_claims(Pod(pod))
    return _list_named(view, pod["metadata"]["namespace"], names) if names else ()


def _list_named(view: View, namespace: str, names: set[str]) -> Iterable[Request]:
    for volume in map(PersistentVolume, view.list(PERSISTENT_VOLUMES)):
        if volume.claim.get("namespace") == namespace and volume.claim.get("name") in names:
            yield Request("", volume.name)


CONTROLLER = Controller(
    name="volumes",
    kind=PERSISTENT_VOLUMES,
    reconcile=reconcile,
    reporter=REPORTER,
    sources=(
        ChangeSource(PERSISTENT_VOLUMES, map_to_self),
        ChangeSource(PERSISTENT_VOLUME_CLAIMS, map_claim),
        ChangeSource(PODS, map_pod),
    ),
)
