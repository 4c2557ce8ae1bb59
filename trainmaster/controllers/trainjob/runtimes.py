"""Which runtime a TrainJob runs from: its snapshot once there is one, else the live object.

The snapshot is a ConfigMap `NAME-runtime-snapshot` with the whole runtime under the key `runtime`. Upstream writes
YAML there; we write JSON, which every YAML reader accepts and which costs a hundredth to make. Editing or deleting a
runtime after the first pass does not reach existing jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, TRAINING_RUNTIMES
from trainmaster.client.view import View
from trainmaster.client.writes import Create
from trainmaster.controllers.ownership import build_owner_reference, is_owned_by
from trainmaster.controllers.waiting import Waiting

GROUP = "trainer.kubeflow.org"
DATA_KEY = "runtime"


@dataclass(frozen=True, slots=True)
class Runtime:
    obj: Object
    snapshot: Create | None
    """The write that keeps it for later passes; None when the snapshot exists."""


def find_runtime_gvr(reference: dict[str, Any]) -> GVR | None:
    if reference.get("apiGroup", GROUP) != GROUP:
        return None
    kind = reference.get("kind", "ClusterTrainingRuntime")
    kinds = {"ClusterTrainingRuntime": CLUSTER_TRAINING_RUNTIMES, "TrainingRuntime": TRAINING_RUNTIMES}
    return kinds.get(kind)


def resolve_runtime(view: View, trainjob: Object) -> Runtime | Waiting:
    name = f"{trainjob['metadata']['name']}-runtime-snapshot"
    snapshot = view.find(CONFIG_MAPS, trainjob["metadata"]["namespace"], name)
    if snapshot is not None:
        return _read_snapshot(trainjob, snapshot)
    return _read_live(view, trainjob, name)


def _read_snapshot(trainjob: Object, snapshot: Object) -> Runtime | Waiting:
    reason = "InvalidRuntimeSnapshot"
    if not is_owned_by(snapshot, trainjob["metadata"]["uid"]):
        name = snapshot["metadata"]["name"]
        sentence = "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
        return Waiting(reason, f"{sentence} (ConfigMap {name}; rename or delete it)")
    text = (snapshot.get("data") or {}).get(DATA_KEY)
    if not isinstance(text, str):
        return Waiting(reason, f'invalid runtime snapshot: snapshot ConfigMap missing "{DATA_KEY}" data key')
    try:
        runtime = _parse(text)
    except ValueError as error:
        return Waiting(reason, f"invalid runtime snapshot: unable to unmarshal the snapshot: {error}")
    reference = trainjob["spec"]["runtimeRef"]
    found = (runtime.get("kind"), (runtime.get("metadata") or {}).get("name"))
    if found != (reference.get("kind", "ClusterTrainingRuntime"), reference["name"]):
        return Waiting(reason, f"invalid runtime snapshot: the snapshot refers to the wrong runtime: {found}")
    return Runtime(runtime, None)


def _parse(text: str) -> Object:
    if text.lstrip().startswith("{"):
        value = orjson.loads(text)
    else:
        import yaml  # noqa: PLC0415  # only snapshots taken by upstream's controller are YAML; loading it costs 20 ms

        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _read_live(view: View, trainjob: Object, snapshot_name: str) -> Runtime | Waiting:
    reference = trainjob["spec"]["runtimeRef"]
    gvr = find_runtime_gvr(reference)
    if gvr is None:
        key = f"{reference.get('kind')}.{reference.get('apiGroup')}"
        return Waiting("TrainingRuntimeNotSupported", f"unsupported runtime: {key}")
    namespace = trainjob["metadata"]["namespace"] if gvr == TRAINING_RUNTIMES else ""
    live = view.find(gvr, namespace, reference["name"])
    if live is None:
        return Waiting("RuntimeNotFound", _explain_missing(view, gvr, namespace, reference["name"]))
    content = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainingRuntime" if gvr == TRAINING_RUNTIMES else "ClusterTrainingRuntime",
        "metadata": {key: value for key, value in live["metadata"].items() if key != "managedFields"},
        "spec": live["spec"],
    }
    data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()
    configmap: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": snapshot_name,
            "namespace": trainjob["metadata"]["namespace"],
            "ownerReferences": [build_owner_reference(trainjob)],
        },
        "data": {DATA_KEY: data},
    }
    return Runtime(content, Create(CONFIG_MAPS, configmap))


def _explain_missing(view: View, gvr: GVR, namespace: str, name: str) -> str:
    kind = "TrainingRuntime" if gvr == TRAINING_RUNTIMES else "ClusterTrainingRuntime"
    known = ", ".join(sorted(runtime["metadata"]["name"] for runtime in view.list(gvr, namespace))) or "none"
    place = f" in namespace {namespace}" if namespace else ""
    return f'{kind} "{name}" does not exist{place}; create it, or use one of those that exist: {known}'
