"""One pass over a PersistentVolume: its phase, and what becomes of it when its claim is gone.

Available without a claim, Bound while the claim that it names has it, Released afterwards. Released and with reclaim
policy Delete, one of our own is deleted once no Pod uses it any more; the node removes the directory before the object
goes (it holds a finalizer). Nothing else is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.api.meta import Object
from trainmaster.api.pods.phases import is_over
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from trainmaster.api.storage import DRIVER
from trainmaster.client.view import View
from trainmaster.client.writes import Delete, Patch, WriteRefusal
from trainmaster.controllers.ownership import is_terminating
from trainmaster.controllers.volumes.claims import REPORTER, build_reference
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

_RETRY_SECONDS = 5.0


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    if refusals:
        return Plan(requeue_after=_RETRY_SECONDS)
    volume = view.find(PERSISTENT_VOLUMES, "", request.name)
    if volume is None or is_terminating(volume):
        return NOTHING
    reference = volume["spec"].get("claimRef")
    if not reference:
        return Plan((), _build_phase(volume, "Available", now))
    claim = view.find(PERSISTENT_VOLUME_CLAIMS, reference.get("namespace", ""), reference.get("name", ""))
    if claim is not None and reference.get("uid", claim["metadata"]["uid"]) == claim["metadata"]["uid"]:
        return _follow(volume, claim, now)
    if not reference.get("uid"):
        return Plan((), _build_phase(volume, "Available", now))
    if _get_phase(volume) != "Released":
        return Plan((), _build_phase(volume, "Released", now))
    if _is_ours(volume) and not _list_users(view, reference):
        meta = volume["metadata"]
        return Plan((Delete(PERSISTENT_VOLUMES, "", meta["name"], meta["uid"], meta["resourceVersion"]),))
    return NOTHING


def _follow(volume: Object, claim: Object, now: Now) -> Plan:
    if claim["spec"].get("volumeName") != volume["metadata"]["name"]:
        return NOTHING
    reference = build_reference(claim)
    writes: tuple[Patch, ...] = ()
    if volume["spec"]["claimRef"].get("uid") != reference["uid"]:
        body = {"metadata": {"uid": volume["metadata"]["uid"]}, "spec": {"claimRef": reference}}
        writes = (Patch(PERSISTENT_VOLUMES, "", volume["metadata"]["name"], body),)
    return Plan(writes, _build_phase(volume, "Bound", now))


def _get_phase(volume: Object) -> str:
    return str((volume.get("status") or {}).get("phase", ""))


def _build_phase(volume: Object, phase: str, now: Now) -> Patch | None:
    if _get_phase(volume) == phase:
        return None
    meta = volume["metadata"]
    body = {
        "metadata": {"uid": meta["uid"]},
        "status": {"phase": phase, "lastPhaseTransitionTime": format_time(now.wall)},
    }
    return Patch(PERSISTENT_VOLUMES, "", meta["name"], body, "status")


def _is_ours(volume: Object) -> bool:
    spec = volume["spec"]
    return spec.get("persistentVolumeReclaimPolicy") == "Delete" and (spec.get("csi") or {}).get("driver") == DRIVER


def _list_users(view: View, reference: Object) -> list[str]:
    """Pods that mount the claim and may still run."""
    return [
        pod["metadata"]["name"]
        for pod in view.list(PODS, reference["namespace"])
        if reference["name"] in list_claims(pod) and not is_over(pod)
    ]


def list_claims(pod: Object) -> set[str]:
    sources = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes") or ())
    return {source["claimName"] for source in sources if source}


def map_claim(view: View, claim: Object) -> Iterable[Request]:
    meta = claim["metadata"]
    return _list_named(view, meta["namespace"], {meta["name"]})


def map_pod(view: View, pod: Object) -> Iterable[Request]:
    """Only the end of a Pod matters; most have no claims at all."""
    names = list_claims(pod)
    return _list_named(view, pod["metadata"]["namespace"], names) if names else ()


def _list_named(view: View, namespace: str, names: set[str]) -> Iterable[Request]:
    for volume in view.list(PERSISTENT_VOLUMES):
        reference = volume["spec"].get("claimRef") or {}
        if reference.get("namespace") == namespace and reference.get("name") in names:
            yield Request("", volume["metadata"]["name"])


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
