"""The requests of an installation: server-side apply, rehearsed first, and deletion of what is ours.

Fields that somebody else has set are not taken over, unless the user asks for it: a conflict names them and their
owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli.installation.cluster.inventory import FIELD_MANAGER
from trainmaster.cli.installation.cluster.objects import ObjectReference, is_left_by_helm, is_marked
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions
from trainmaster.operator.monitoring.troubles import join

Live = Mapping[ObjectReference, Object]
"""The objects that exist."""

CREATED, CHANGED, UNCHANGED = "created", "changed", "unchanged"
RIGHTS = "an installation creates definitions, roles and webhooks, which takes the rights of a cluster's administrator"
_FOREIGN_KINDS = {
    "monitoring.coreos.com": "install the Prometheus operator first, or leave out serviceMonitor and prometheusRule",
    "cert-manager.io": "install cert-manager first, or leave out webhook.certManager",
}


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    dry_run: bool = False
    force: bool = False
    """Take over fields of others."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    reference: ObjectReference
    verb: str


async def read_live(client: Client, references: Sequence[ObjectReference]) -> Live:
    found = {}
    for one in references:
        try:
            found[one] = await client.get(one.gvr, one.name, one.namespace)
        except NotFound:
            continue
    return found


async def apply_object(
    client: Client, reference: ObjectReference, obj: Object, live: Live, options: ApplyOptions
) -> ObjectChange:
    """Raises StatusError."""
    # What a removed Helm release has left is nobody's.
    force = options.force or (reference.kept and reference in live and is_left_by_helm(live[reference]))
    write = WriteOptions(dry_run=options.dry_run, field_manager=FIELD_MANAGER, force=force, field_validation="Strict")
    gvr, namespace, name = reference.place
    stored = await client.patch(gvr, name, PatchType.APPLY, obj, namespace, options=write)
    before = live.get(reference)
    if before is None:
        return ObjectChange(reference, CREATED)
    return ObjectChange(reference, UNCHANGED if _is_same(before, stored) else CHANGED)


def _is_same(before: Fields, after: Fields) -> bool:
    """A dry run always has another resourceVersion, and times of managed fields."""
    return _drop_bookkeeping(before) == _drop_bookkeeping(after)


def _drop_bookkeeping(obj: Fields) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": {**meta, "generation": 0}}


def is_early(error: StatusError, reference: ObjectReference, created: Sequence[ObjectReference]) -> bool:
    """Whether a rehearsal fails only because an object does not exist yet that would be created before."""
    names = {one.name for one in created if one.gvr == NAMESPACES or one.kind in ("ClusterRole", "Role")}
    return error.code == 404 and any(f'"{name}" not found' in error.message for name in names if name)


def explain_refusal(reference: ObjectReference, error: StatusError) -> str:
    """One sentence with what to do."""
    what = f"{reference.title}: {error.message}"
    if error.code == 404 and reference.gvr.group in _FOREIGN_KINDS:
        return f"the cluster does not serve {reference.gvr.qualified}: {_FOREIGN_KINDS[reference.gvr.group]}"
    if is_about_rights(error):
        return f"{what}; {RIGHTS}"
    if error.code == 409 and error.causes:
        return f"{reference.title}: {_describe_conflicts(error)}; {_advise_on_conflict(reference)}"
    return what


def is_about_rights(error: StatusError) -> bool:
    """Not of a quota, or of a namespace that is being deleted."""
    return error.code == 403 and (" cannot " in error.message or "attempting to grant" in error.message)


def _describe_conflicts(error: StatusError) -> str:
    fields = join(str(cause.get("field", "")).removeprefix(".") for cause in error.causes)
    managers = sorted({str(cause.get("message", "")).removeprefix("conflict with ") for cause in error.causes})
    return f"{join(managers)} has set {fields}, with other values"


def _advise_on_conflict(reference: ObjectReference) -> str:
    if reference.gvr == CUSTOM_RESOURCE_DEFINITIONS:
        return (
            "if this is the definition of Kubeflow Trainer or of an older version, --force-conflicts replaces it, and "
            "its objects stay; --set crds.enabled=false leaves it as it is"
        )
    return "--force-conflicts takes these fields over"


async def delete_object(client: Client, reference: ObjectReference, namespace: str, *, propagation: str = "") -> str:
    """ "deleted", "" if it is gone already, or why it stays."""
    gvr, place, name = reference.place
    try:
        found = await client.get(gvr, name, place)
        if not is_marked(found, namespace):
            return f"stays: it does not belong to the installation in {namespace} any more"
        options = DeleteOptions(propagation=propagation, uid=found["metadata"]["uid"])
        await client.delete(gvr, name, place, options)
    except NotFound:
        return ""
    return "deleted"
