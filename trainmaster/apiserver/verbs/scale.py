"""GET, PUT and PATCH of the subresource `scale`.

A write becomes an update of the object itself, in which only the number of replicas differs. So admission, quotas and
validation see the whole object, as for any other update.
"""

from __future__ import annotations

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind, ScalePaths
from trainmaster.api.kindsets.autoscaling_v1 import SCALE
from trainmaster.api.meta import Object
from trainmaster.api.patches import merge
from trainmaster.api.reading import read_spec
from trainmaster.api.scale import build_fields, find_scale, get_parent
from trainmaster.api.status import StatusError
from trainmaster.apiserver import stored
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake, metadata, update
from trainmaster.apiserver.verbs.patch import PatchTarget, check_options, check_type, decode_applied, decode_patched
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.store.contract import StoredRecord


def read_scale(state: RegistryState, kind: Kind, namespace: str, name: str) -> Written:
    record = _get_record(state, kind, namespace, name)
    return Written(stored.dump(_get_scale(kind, state.peek(kind, record))), record.revision)


def update_scale(
    state: RegistryState, call: Call, kind: Kind, namespace: str, name: str, scale: Object, options: WriteOptions
) -> Written:
    intake.check_options("UpdateOptions", options)
    intake.decode(call, SCALE, scale, options)
    metadata.check_name(scale["metadata"], name)
    metadata.fit_namespace(kind, scale["metadata"], namespace)
    record = _get_record(state, kind, namespace, name)
    update.check_uid(kind, scale, state.peek(kind, record))
    return _scale(state, call, kind, record, scale, options)


def patch_scale(
    state: RegistryState, call: Call, target: PatchTarget, patch_type: PatchType, body: object, options: WriteOptions
) -> Written:
    kind = target.kind
    check_options(patch_type, options)
    check_type(kind, patch_type)
    record = _get_record(state, kind, target.namespace, target.name)
    if patch_type is PatchType.APPLY:
        scale = decode_applied(call, SCALE, body, options)
    else:
        patched = intake.patched(SCALE, _get_scale(kind, state.peek(kind, record)), patch_type, body)
        scale = decode_patched(state, call, SCALE, record, patched, options)
    metadata.check_name(scale["metadata"], target.name)
    metadata.fit_namespace(kind, scale["metadata"], target.namespace)
    return _scale(state, call, kind, record, scale, options, applied=patch_type is PatchType.APPLY)


def _scale(
    state: RegistryState,
    call: Call,
    kind: Kind,
    record: StoredRecord,
    scale: Object,
    options: WriteOptions,
    *,
    applied: bool = False,
) -> Written:
    old = state.read(kind, record)
    _get_scale(kind, old)
    replicas = read_spec(scale).get("replicas")
    if applied and replicas is None:
        raise status.bad_request("an applied Scale must set spec.replicas")
    # Clients leave out a 0.
    part = build_fields(_get_paths(kind), replicas or 0)
    if applied:
        name = {"name": old["metadata"]["name"], "namespace": old["metadata"]["namespace"]}
        wanted = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": name, **part}
        new = intake.apply(state, kind, old, wanted, options, "scale")
    else:
        new = orjson.loads(orjson.dumps(merge.apply(old, part)))
    if version := scale["metadata"].get("resourceVersion"):
        new["metadata"]["resourceVersion"] = version
    change = update.ObjectUpdate(kind, record, old, new, "scale", applied=applied)
    written = update.replace(state, call, change, options)
    return Written(stored.dump(_get_scale(kind, orjson.loads(written.value))), written.revision)


def _get_record(state: RegistryState, kind: Kind, namespace: str, name: str) -> StoredRecord:
    record = state.find(kind, namespace, name)
    if record is None:
        raise status.not_found(kind.gvr, name)
    return record


def _get_paths(kind: Kind) -> ScalePaths:
    assert kind.scale is not None, "the registry checks it"
    return kind.scale


def _get_scale(kind: Kind, obj: Object) -> Object:
    paths = _get_paths(kind)
    scale = find_scale(paths, obj)
    if scale is None:
        name = f'{kind.gvr.qualified} "{obj["metadata"]["name"]}"'
        raise StatusError(404, "NotFound", f"{name} cannot be scaled, because it has no {get_parent(paths)}")
    return scale
