"""POST: sets the metadata of a new object, runs admission and validation, and stores it.

Also handles reviews (`RegistryState.reviewers`) and POST on subresources (`RegistryState.creators`), which are not
stored.
"""

from __future__ import annotations

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_text
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import CREATE, Attributes
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake, metadata, proofs
from trainmaster.client.contract import WriteOptions
from trainmaster.store.contract import StoredRecord

# As many attempts at a generated name as upstream.
_ATTEMPTS = 8


def create(state: RegistryState, call: Call, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Written:
    intake.check_options("CreateOptions", options)
    intake.decode(call, kind, obj, options)
    if kind.review:
        return review(state, call, kind, obj)
    intake.check_resource_version_unset(obj)
    return store_new(state, call, kind, namespace, obj, options)


def store_new(
    state: RegistryState,
    call: Call,
    kind: Kind,
    namespace: str,
    obj: Object,
    options: WriteOptions,
    *,
    applied: bool = False,
    is_proven: bool = False,
) -> Written:
    """All steps after decoding. `applied`: the object comes from server-side apply and has its managedFields.
    `is_proven`: see `client.writes.Create`."""
    meta = obj["metadata"]
    metadata.fit_namespace(kind, meta, namespace)
    managed = meta.get("managedFields")
    metadata.complete_new(meta, state.ids.uid(), state.now(), generation=kind.generation)
    if applied:
        meta["managedFields"] = managed
    if kind.status:
        obj.pop("status", None)
    intake.default(kind, obj)
    if not applied:
        # Before admission and `prepare`: fields that the server fills in afterwards have no owner, as upstream.
        intake.track(state, call, kind, None, obj, options)
    attributes = Attributes(call, kind, CREATE, namespace, read_text(meta, "name"), obj, None, dry_run=options.dry_run)
    state.admission.mutate(attributes)
    name_new(state, kind, obj)
    # Needs the name (for a Job's labels) and the result of admission (for a Pod's QoS class).
    kind.prepare(obj)
    attributes.name = read_text(meta, "name")
    if not is_proven:
        intake.validate(kind, obj, None)
        call.warnings.extend(kind.warnings(obj, None))
    elif state.proves:
        proofs.check_new(kind, obj)
    standing = state.find(kind, namespace, meta["name"])
    if standing is not None:
        raise occupied(kind, standing, meta["name"])
    # Last, because quotas record an accepted object.
    state.admission.validate(attributes)
    if options.dry_run:
        return Written(state.show_unwritten(obj, None), 0, created=True)
    record = state.put(kind, obj, None)
    return Written(state.show(kind, record), record.revision, created=True)


def name_new(state: RegistryState, kind: Kind, obj: Object) -> None:
    """Generates a name if generateName is set. If neither is set, validation reports that a name is required."""
    meta = obj["metadata"]
    base = meta.get("generateName")
    if meta.get("name") or not base:
        return
    for _ in range(_ATTEMPTS):
        meta["name"] = metadata.generate_name(base, state.ids)
        if state.find(kind, meta.get("namespace", ""), meta["name"]) is None:
            return


def occupied(kind: Kind, standing: StoredRecord, name: str) -> status.AlreadyExists:
    error = status.already_exists(kind.gvr, name)
    if not stored.peek_deletion(standing.value):
        return error
    return status.AlreadyExists(409, error.reason, f"object is being deleted: {error.message}", details=error.details)


def review(state: RegistryState, call: Call, kind: Kind, obj: Object) -> Written:
    reviewer = state.reviewers.get(kind.gvr)
    if reviewer is None:
        raise status.method_not_allowed()
    intake.validate(kind, obj, None)
    return Written(stored.dump(reviewer(call, obj)), 0, created=True)


def create_subresource(
    state: RegistryState,
    call: Call,
    kind: Kind,
    namespace: str,
    name: str,
    subresource: str,
    obj: Object,
    options: WriteOptions,
) -> Written:
    creator = state.creators.get((kind.gvr, subresource))
    if creator is None:
        raise status.method_not_allowed()
    intake.check_options("CreateOptions", options)
    return creator(call, kind, namespace, name, obj, options)
