"""PUT, and the second half of PATCH, after the new object is computed.

`replace` handles optimistic locking, immutable metadata, the separation of status and spec, generation, admission,
validation and field ownership. Validation sees the stored object in the spelling of the new one (`api.spelling`). A
write that changes nothing keeps the revision and causes no event. If the write removes the last finalizer of an object
that is being deleted, the object is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api import fields, spelling, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.patches import managed_fields
from trainmaster.api.reading import read_text
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import UPDATE, Attributes
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake, metadata
from trainmaster.apiserver.verbs.create import store_new
from trainmaster.client.contract import WriteOptions
from trainmaster.store.contract import StoredRecord


@dataclass(slots=True)
class ObjectUpdate:
    """An update of one object: its location, the old and the new state."""

    kind: Kind
    record: StoredRecord
    old: Object
    new: Object
    subresource: str = ""
    applied: bool = False
    """The new object comes from server-side apply and has its managedFields."""


def update(
    state: RegistryState,
    call: Call,
    kind: Kind,
    namespace: str,
    name: str,
    obj: Object,
    options: WriteOptions,
    *,
    subresource: str = "",
) -> Written:
    intake.check_options("UpdateOptions", options)
    check_subresource(kind, subresource)
    intake.decode(call, kind, obj, options)
    metadata.check_name(obj["metadata"], name)
    metadata.fit_namespace(kind, obj["metadata"], namespace)
    record = state.find(kind, namespace, name)
    if record is None:
        if kind.updates.creates and not subresource:
            intake.check_resource_version_unset(obj)
            return store_new(state, call, kind, namespace, obj, options)
        raise status.not_found(kind.gvr, name)
    old = state.read(kind, record)
    check_uid(kind, obj, old)
    return replace(state, call, ObjectUpdate(kind, record, old, obj, subresource), options)


def check_subresource(kind: Kind, subresource: str) -> None:
    if subresource and not (subresource == "status" and kind.status):
        raise status.unknown_path()


def check_uid(kind: Kind, new: Object, old: Object) -> None:
    """Refuses a PUT with the uid of an earlier object of the same name."""
    uid = new["metadata"].get("uid")
    if not uid or uid == old["metadata"]["uid"]:
        return
    meta = old["metadata"]
    place = [kind.group] if kind.custom else []
    place += [kind.plural, *([meta["namespace"]] if kind.namespaced else []), meta["name"]]
    raise status.conflict(
        kind.gvr,
        meta["name"],
        f"StorageError: invalid object, Code: 4, Key: /registry/{'/'.join(place)}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}",
    )


def check_resource_version(kind: Kind, new: Object, old: Object) -> None:
    asked = read_text(new["metadata"], "resourceVersion")
    name = old["metadata"]["name"]
    if asked in ("", "0"):
        if kind.custom or kind.updates.needs_version:
            error = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise status.invalid(kind.group, kind.plural, name, [error])
        return
    if asked == old["metadata"]["resourceVersion"]:
        return
    if not asked.isdigit():
        raise status.bad_request(f"strconv.ParseUint: parsing {fields.render_value(asked)}: invalid syntax")
    raise status.conflict(kind.gvr, name)


def replace(state: RegistryState, call: Call, change: ObjectUpdate, options: WriteOptions) -> Written:
    kind, old, new = change.kind, change.old, change.new
    check_resource_version(kind, new, old)
    keep_apart(change)
    metadata.keep_immutable(new["metadata"], old["metadata"])
    standing = old
    if change.subresource != "status":
        intake.default(kind, new)
        standing = spelling.respell(kind, old, new)
        count_generation(kind, new, standing)
    if not change.applied:
        # Before admission: fields that it changes have no owner, as upstream.
        intake.track(state, call, kind, old, new, options, subresource=change.subresource)
    meta = old["metadata"]
    attributes = Attributes(
        call,
        kind,
        UPDATE,
        meta.get("namespace", ""),
        meta["name"],
        new,
        old,
        change.subresource,
        options.dry_run,
    )
    state.admission.mutate(attributes)
    errors = metadata.update_errors(new["metadata"], meta)
    intake.validate(kind, new, standing, subresource=change.subresource, errors=errors)
    call.warnings.extend(kind.warnings(new, standing))
    state.admission.validate(attributes)
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    change.new = managed_fields.keep_times(old, new)
    return store_change(state, change, dry_run=options.dry_run)


def store_change(state: RegistryState, change: ObjectUpdate, *, dry_run: bool = False) -> Written:
    """Stores `change.new`, or removes the object if it is being deleted and nothing prevents it."""
    kind, record, new = change.kind, change.record, change.new
    new["metadata"]["resourceVersion"] = change.old["metadata"]["resourceVersion"]
    if new == change.old:
        return Written(state.show(kind, record), record.revision)
    if dry_run:
        return Written(state.show_unwritten(new, record), 0)
    if metadata.is_deletable(kind, new):
        # The response shows the last written state; watchers see the deletion with its own revision.
        gone = state.remove(kind, new, record)
        return Written(stored.dump(new), gone.revision)
    written = state.put(kind, new, record)
    return Written(state.show(kind, written), written.revision)


def keep_apart(change: ObjectUpdate) -> None:
    """Keeps the old status, or for writes to /status everything but the status."""
    kind, old, new = change.kind, change.old, change.new
    if change.subresource == "status":
        _keep_all_but_status(kind, old, new)
    elif kind.status:
        _copy_field(old, new, "status")
    if kind.updates.keeps_spec:
        _copy_field(old, new, "spec")


def _keep_all_but_status(kind: Kind, old: Object, new: Object) -> None:
    for name in set(old) | set(new):
        if name not in ("metadata", "status"):
            _copy_field(old, new, name)
    meta = new["metadata"]
    if kind.custom:
        # A status write of a custom kind changes no metadata but managedFields.
        kept = {**old["metadata"], "resourceVersion": meta.get("resourceVersion", "")}
        if "managedFields" in meta:
            kept["managedFields"] = meta["managedFields"]
        if meta.get("uid"):
            kept["uid"] = meta["uid"]
        new["metadata"] = kept
        return
    for name in kind.updates.status_keeps:
        _copy_field(old["metadata"], meta, name)


def _copy_field(source: Object, target: Object, name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def count_generation(kind: Kind, new: Object, old: Object) -> None:
    if kind.generation and metadata.differs_outside_metadata(kind, new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
