"""PATCH, in four formats. Each computes the new object from the stored one; `update.replace` does the rest. The most
frequent patches take a fast path with the same result (`short_patch`).

The patched object includes its resourceVersion, so a patch can test or set it for optimistic locking. Server-side apply
creates the object if it does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake, metadata, short_patch, update
from trainmaster.apiserver.verbs.create import store_new
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.store.contract import StoredRecord

_CUSTOM_TYPES = (PatchType.JSON.value, PatchType.MERGE.value, PatchType.APPLY.value)


@dataclass(frozen=True, slots=True)
class PatchTarget:
    kind: Kind
    namespace: str
    name: str
    subresource: str = ""


def patch(
    state: RegistryState, call: Call, target: PatchTarget, patch_type: PatchType, body: object, options: WriteOptions
) -> Written:
    kind, namespace, name, subresource = target.kind, target.namespace, target.name, target.subresource
    check_options(patch_type, options)
    update.check_subresource(kind, subresource)
    check_type(kind, patch_type)
    if patch_type is PatchType.APPLY:
        return apply(state, call, target, body, options)
    record = state.find(kind, namespace, name)
    if record is None:
        raise status.not_found(kind.gvr, name)
    if patch_type is PatchType.MERGE and not options.dry_run:
        written = short_patch.find_written(state, call, kind, record, body, options, subresource)
        if written is not None:
            return written
    # A merge patch does not modify its input; the others may.
    old = state.peek(kind, record) if patch_type is PatchType.MERGE else state.read(kind, record)
    new = decode_patched(state, call, kind, record, intake.patched(kind, old, patch_type, body), options)
    metadata.check_name(new["metadata"], name)
    metadata.fit_namespace(kind, new["metadata"], namespace)
    return update.replace(state, call, update.ObjectUpdate(kind, record, old, new, subresource), options)


def check_options(patch_type: PatchType, options: WriteOptions) -> None:
    intake.check_options("PatchOptions", options)
    if patch_type is PatchType.APPLY:
        if not options.field_manager:
            error = fields.required("fieldManager", "is required for apply patch")
            raise metadata.options_invalid("PatchOptions", [error])
    elif options.force:
        error = fields.forbidden("force", "may not be specified for non-apply patch")
        raise metadata.options_invalid("PatchOptions", [error])


def check_type(kind: Kind, patch_type: PatchType) -> None:
    if patch_type is PatchType.STRATEGIC and kind.custom:
        raise status.unsupported_media_type(_CUSTOM_TYPES)


def decode_patched(
    state: RegistryState, call: Call, kind: Kind, record: StoredRecord, result: Object, options: WriteOptions
) -> Object:
    """A decoded copy of the result of a patch, which may share branches with the stored object.

    As upstream, errors are reported as an invalid patch, not as a bad request.
    """
    raw = orjson.dumps(result)
    state.limits.check_stored(result, raw, record.value)
    new: Object = orjson.loads(raw)
    try:
        intake.decode(call, kind, new, options)
    except StatusError as error:
        if error.code != 400 or kind.custom:
            raise
        reason = error.message.partition(": ")[2] or error.message
        raise status.invalid("", "", "", [fields.invalid("patch", raw.decode(), reason)]) from None
    return new


def apply(state: RegistryState, call: Call, target: PatchTarget, body: object, options: WriteOptions) -> Written:
    """Server-side apply: the body contains only the fields that this manager wants to own."""
    kind = target.kind
    wanted = decode_applied(call, kind, body, options)
    meta = wanted["metadata"]
    metadata.check_name(meta, target.name)
    metadata.fit_namespace(kind, meta, target.namespace)
    record = state.find(kind, target.namespace, target.name)
    if record is None:
        return _apply_new(state, call, target, wanted, options)
    old = state.read(kind, record)
    _check_lock(kind, meta, old)
    new = intake.apply(state, kind, old, wanted, options, target.subresource)
    if meta.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = meta["resourceVersion"]
    change = update.ObjectUpdate(kind, record, old, new, target.subresource, applied=True)
    return update.replace(state, call, change, options)


def decode_applied(call: Call, kind: Kind, body: object, options: WriteOptions) -> Object:
    """The body of a server-side apply, which has to be of this kind."""
    if not isinstance(body, dict):
        text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        raise status.bad_request(text)
    given = (body.get("apiVersion") or "", body.get("kind") or "")
    if not isinstance(given[0], str) or not isinstance(given[1], str):
        raise status.bad_request("error decoding patch: apiVersion and kind must be strings")
    if given != (kind.api_version, kind.kind):
        group, slash, version = given[0].rpartition("/")
        raise status.bad_request(f"invalid object type: {group if slash else ''}/{version}, Kind={given[1]}")
    wanted = intake.decode_applied(call, kind, body, options)
    if wanted["metadata"].get("managedFields"):
        raise status.bad_request("metadata.managedFields must be nil")
    return wanted


def _check_lock(kind: Kind, meta: Object, old: Object) -> None:
    uid = meta.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        raise status.conflict(
            kind.gvr,
            old["metadata"]["name"],
            f"uid mismatch: the provided object specified uid {uid}, and the existing object has uid "
            f"{old['metadata']['uid']}",
        )


def _apply_new(state: RegistryState, call: Call, target: PatchTarget, wanted: Object, options: WriteOptions) -> Written:
    if target.subresource:
        raise status.not_found(target.kind.gvr, target.name)
    uid = wanted["metadata"].get("uid")
    if uid:
        text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise status.conflict(target.kind.gvr, target.name, text)
    intake.check_resource_version_unset(wanted)
    new = intake.apply(state, target.kind, None, wanted, options, "")
    return store_new(state, call, target.kind, target.namespace, new, options, applied=True)
