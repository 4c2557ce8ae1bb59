"""DELETE: preconditions, finalizers, propagation and graceful deletion, for one object or for a selection.

An object without finalizers and grace period is removed at once. Otherwise it gets a deletionTimestamp and stays until
its last finalizer is removed (`update.replace`) or, for a Pod on a node, until the node confirms with grace period 0.
Propagation policies are finalizers too: the garbage collector handles `orphan` and `foregroundDeletion`.
"""

from __future__ import annotations

from datetime import timedelta

import orjson

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import list_items
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import DELETE, Attributes
from trainmaster.apiserver.contract import Call, DeleteResult
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import metadata
from trainmaster.client.contract import DeleteOptions
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.store.contract import StoredRecord

_POLICIES = ("Foreground", "Background", "Orphan")


def delete(
    state: RegistryState, call: Call, kind: Kind, namespace: str, name: str, options: DeleteOptions
) -> DeleteResult:
    check_options(options)
    record = state.find(kind, namespace, name)
    if record is None:
        raise status.not_found(kind.gvr, name)
    old = state.read(kind, record)
    check_preconditions(kind, old, options)
    attributes = Attributes(call, kind, DELETE, namespace, name, {}, old, dry_run=options.dry_run)
    state.admission.mutate(attributes)
    state.admission.validate(attributes)
    warning = kind.deletions.orphan_warning
    if warning and not options.propagation and "deletionTimestamp" not in old["metadata"]:
        call.warnings.append(warning)
    new = decide_deletion(state, kind, old, options)
    if "deletionTimestamp" not in new["metadata"] or metadata.is_deletable(kind, new):
        return _remove(state, kind, record, new, options)
    if new == old:
        return DeleteResult(state.show(kind, record), record.revision, gone=False)
    if options.dry_run:
        return DeleteResult(stored.dump(new), 0, gone=False)
    written = state.put(kind, new, record)
    return DeleteResult(state.show(kind, written), written.revision, gone=False)


def delete_listed(
    state: RegistryState, call: Call, kind: Kind, value: bytes, options: DeleteOptions
) -> DeleteResult | None:
    """Deletes an object of a list; None if it was deleted meanwhile."""
    meta = stored.parse(value)["metadata"]
    namespace, name = meta.get("namespace", ""), meta["name"]
    if state.find(kind, namespace, name) is None:
        return None
    return delete(state, call, kind, namespace, name, options)


def check_options(options: DeleteOptions) -> None:
    if options.propagation and options.propagation not in _POLICIES:
        error = fields.not_supported("propagationPolicy", options.propagation, [*_POLICIES, "nil"])
        raise metadata.options_invalid("DeleteOptions", [error])


def check_preconditions(kind: Kind, old: Object, options: DeleteOptions) -> None:
    meta = old["metadata"]
    # Upstream names the kind here, not the collection.
    named = GVR(kind.group, kind.version, kind.kind)
    if options.uid and options.uid != meta["uid"]:
        raise status.conflict(
            named,
            meta["name"],
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    version = meta["resourceVersion"]
    if options.resource_version and options.resource_version != version:
        raise status.conflict(
            named,
            meta["name"],
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({version}). The object might have been modified",
        )


def decide_deletion(state: RegistryState, kind: Kind, old: Object, options: DeleteOptions) -> Object:
    """The object after the delete request: with finalizers, grace period and deletionTimestamp.

    Without a deletionTimestamp it can be removed at once, and watchers see its last state unchanged.
    """
    new = {**old, "metadata": dict(old["metadata"])}
    meta = new["metadata"]
    finalizers = _finalizers(kind, meta, options)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    grace = None if kind.deletions.grace is None else kind.deletions.grace(old, options.grace_seconds)
    if "deletionTimestamp" in meta:
        _shorten(meta, options)
    elif grace is not None or finalizers or kind.deletions.begin is not None:
        _begin(state, meta, grace or 0)
        if kind.deletions.begin is not None:
            kind.deletions.begin(new)
    return new


def _finalizers(kind: Kind, meta: Object, options: DeleteOptions) -> list[str]:
    """The finalizers according to the propagation policy."""
    names = list(list_items(meta, "finalizers"))
    policy = options.propagation
    if not policy:
        is_decided = "deletionTimestamp" in meta or metadata.FOREGROUND in names or metadata.ORPHAN in names
        if is_decided or not kind.deletions.orphan_warning:
            return names
        policy = "Orphan"
    names = [name for name in names if name not in (metadata.FOREGROUND, metadata.ORPHAN)]
    if policy == "Orphan":
        names.append(metadata.ORPHAN)
    elif policy == "Foreground":
        names.append(metadata.FOREGROUND)
    return names


def _begin(state: RegistryState, meta: Object, grace: int) -> None:
    meta["deletionTimestamp"] = format_time(state.clock.now() + timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation"):
        meta["generation"] += 1


def _shorten(meta: Object, options: DeleteOptions) -> None:
    """A second deletion may only shorten the grace period."""
    current = meta.get("deletionGracePeriodSeconds")
    asked = options.grace_seconds
    if current is None or asked is None or asked >= current:
        return
    asked = max(0, asked)
    began = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=current)
    meta["deletionTimestamp"] = format_time(began + timedelta(seconds=asked))
    meta["deletionGracePeriodSeconds"] = asked


def _remove(
    state: RegistryState, kind: Kind, record: StoredRecord, last: Object, options: DeleteOptions
) -> DeleteResult:
    revision = 0
    shown = last
    if not options.dry_run:
        gone = state.remove(kind, last, record)
        revision = gone.revision
        shown = {**last, "metadata": {**last["metadata"], "resourceVersion": str(revision)}}
    if kind.deletions.answers_with_object:
        return DeleteResult(stored.dump(shown), revision, gone=True)
    return DeleteResult(orjson.dumps(success(kind, last)), revision, gone=True)


def success(kind: Kind, obj: Object) -> Object:
    """The Status for a removed object."""
    details = {"name": obj["metadata"]["name"]}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.plural, "uid": obj["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
