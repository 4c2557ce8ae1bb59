"""The subresources binding and eviction of Pods, used by schedulers and by `kubectl drain`.

A binding sets the node, once. An eviction deletes the Pod and records the reason in a condition, so that a Job's
failure policy can tell it from a failure; there are no disruption budgets on one machine. Both return a Status.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from trainmaster.api import fields, status
from trainmaster.api.conditions import build_condition, list_conditions, set_condition
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_fields, read_metadata, read_status
from trainmaster.api.validation import names
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState, SubresourceCreator
from trainmaster.apiserver.verbs import update
from trainmaster.apiserver.verbs.delete import delete
from trainmaster.client.contract import DeleteOptions, WriteOptions

_BINDING = GVR("", "v1", "pods/binding")
_DONE = orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def build_binder(state: RegistryState) -> SubresourceCreator:
    def bind(call: Call, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions) -> Written:
        node = _read_target(name, obj)
        pod = _read_pod(state, kind, namespace, name)
        problem = _find_obstacle(pod)
        if problem:
            raise status.conflict(_BINDING, name, f"pod {name} {problem}")
        given = read_metadata(obj)
        for field in ("labels", "annotations"):
            if given.get(field):
                pod["metadata"][field] = {**read_fields(pod, "metadata", field), **given[field]}
        pod["spec"]["nodeName"] = node
        with state.store.transaction():
            _replace(state, call, kind, pod, options)
            written = _set(state, call, kind, pod["metadata"], ("PodScheduled", "", ""), options)
        return Written(_DONE, written.revision, created=True)

    return bind


def _find_obstacle(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _read_target(name: str, obj: Object) -> str:
    target = obj.get("target")
    if obj.get("kind", "Binding") != "Binding" or not isinstance(target, Mapping | None):
        raise status.bad_request("the body of a binding must be a Binding")
    target = target or {}
    errors: list[FieldError] = []
    if target.get("kind") not in (None, "", "Node"):
        errors.append(fields.not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    node = target.get("name")
    if not isinstance(node, str) or not node:
        errors.append(fields.required("target.name"))
    else:
        errors += [fields.invalid("target.name", node, text) for text in names.path_segment(node)]
    if errors:
        raise status.invalid("", "Binding", name, errors)
    return str(node)


def build_evictor(state: RegistryState) -> SubresourceCreator:
    def evict(call: Call, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions) -> Written:
        if obj.get("kind", "Eviction") != "Eviction":
            raise status.bad_request("the body of an eviction must be an Eviction")
        if read_metadata(obj).get("name", name) != name:
            raise status.bad_request("name in URL does not match name in Eviction object")
        asked = _read_options(obj.get("deleteOptions"), dry_run=options.dry_run)
        pod = _read_pod(state, kind, namespace, name)
        with state.store.transaction():
            if not asked.dry_run:
                reason = ("DisruptionTarget", "EvictionByEvictionAPI", "Eviction API: evicting")
                _set(state, call, kind, pod["metadata"], reason, options)
            deleted = delete(state, call, kind, namespace, name, asked)
        return Written(_DONE, deleted.revision, created=True)

    return evict


def _read_options(value: object, *, dry_run: bool) -> DeleteOptions:
    given = value or {}
    if not isinstance(given, Mapping):
        raise status.bad_request("deleteOptions must be an object")
    grace, wanted = given.get("gracePeriodSeconds"), read_fields(given, "preconditions")
    if not isinstance(grace, int | None) or isinstance(grace, bool) or not isinstance(wanted, Mapping):
        raise status.bad_request("deleteOptions: wrong type of field")
    return DeleteOptions(
        propagation=str(given.get("propagationPolicy") or ""),
        grace_seconds=None if grace is None else max(0, grace),
        uid=str(wanted.get("uid") or ""),
        dry_run=dry_run or bool(given.get("dryRun")),
    )


def _read_pod(state: RegistryState, kind: Kind, namespace: str, name: str) -> Object:
    record = state.find(kind, namespace, name)
    if record is None:
        raise status.not_found(kind.gvr, name)
    return state.read(kind, record)


def _set(
    state: RegistryState, call: Call, kind: Kind, meta: Object, facts: tuple[str, str, str], options: WriteOptions
) -> Written:
    """Sets a condition (type, reason, message) to true."""
    pod = _read_pod(state, kind, meta["namespace"], meta["name"])
    full = build_condition(facts[0], True, facts[1], facts[2], state.clock.now())
    condition = {key: value for key, value in full.items() if value}
    pod["status"] = {**read_status(pod), "conditions": set_condition(list_conditions(pod), condition)}
    return _replace(state, call, kind, pod, options, "status")


def _replace(
    state: RegistryState, call: Call, kind: Kind, pod: Object, options: WriteOptions, subresource: str = ""
) -> Written:
    meta = pod["metadata"]
    record = state.find(kind, meta["namespace"], meta["name"])
    assert record is not None, "read a moment ago"
    change = update.ObjectUpdate(kind, record, state.read(kind, record), pod, subresource)
    return update.replace(state, call, change, options)
