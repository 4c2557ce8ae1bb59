"""What must be equal on both servers, in one form: objects without uids, times and what a server adds for itself."""

from __future__ import annotations

import re
from typing import Any

from tests.flow.stage import Stage
from trainmaster.api.labels import RESTART_SERIES, RUNTIME_ORIGIN, WAITING
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, SECRETS, TRAIN_JOBS
from trainmaster.api.training import snapshots
from trainmaster.controllers.trainjob.announced import ANNOTATION

_OWN = (WAITING, RESTART_SERIES, ANNOTATION)
"""Notes that our own JobSet controller makes on a JobSet; and one of the operator, which may not read Secrets."""
_TIMES = ("lastTransitionTime", "since", "startTime", "completionTime", "finishedAt")


_POD_NAME = re.compile(r"\b(first-[a-z]+-\d+-\d+)-[a-z0-9]{5}\b")


def mask(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        kept = {key: mask(item, namespace) for key, item in value.items() if key != "uid"}
        return {key: "(time)" if key in _TIMES else item for key, item in kept.items()}
    if isinstance(value, list):
        return [mask(item, namespace) for item in value]
    if isinstance(value, str):
        # The last part of a Pod's name is drawn by whoever makes it.
        value = _POD_NAME.sub(r"\1-(drawn)", value)
        return value.replace(namespace, "(namespace)") if namespace != "default" else value
    return value


def describe(obj: Object, namespace: str, *fields: str) -> Object:
    meta = obj["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != "stranger"}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in _OWN}
    head = {"labels": labels, "annotations": annotations, "owners": meta.get("ownerReferences") or []}
    result: Object = mask({**head, **{field: obj.get(field) for field in fields}}, namespace)
    return result


def describe_snapshot(obj: Object, namespace: str) -> Object:
    """A runtime snapshot; of the runtime's metadata only what its author wrote."""
    runtime = snapshots.read(obj["data"][snapshots.DATA_KEY])
    meta = {key: value for key, value in runtime["metadata"].items() if key in ("name", "labels", "annotations")}
    described = describe(obj, namespace)
    # On the cluster the runtimes were applied, and not installed by our operator.
    described["annotations"].pop(RUNTIME_ORIGIN, None)
    return {**described, "runtime": {**runtime, "metadata": meta}}


def list_differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Every place in which the two are not equal, one line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted({*ours, *theirs}):
            found += list_differences(ours.get(key, "(none)"), theirs.get(key, "(none)"), f"{path}.{key}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for index, pair in pairs for line in list_differences(*pair, f"{path}[{index}]")]
    return [] if ours == theirs else [f"{path}: embedded {ours!r}, cluster {theirs!r}"]


def take_last_words(objects: dict[str, Object]) -> set[str]:
    """Removes the termination message policies from the containers of all JobSets, and returns them; "" is none. They
    differ: on one machine the node keeps the end of a log by itself, and a kubelet has to be asked."""
    found = set()
    for name, obj in objects.items():
        for job in obj["spec"]["replicatedJobs"] if name.startswith(f"{JOB_SETS.plural}/") else ():
            pod = job["template"]["spec"]["template"]["spec"]
            for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
                found.add(container.pop("terminationMessagePolicy", ""))
    return found


async def describe_all(stage: Stage) -> dict[str, Object]:
    """Everything that the TrainJob controller made or wrote, by kind and name."""
    found = {}
    for gvr, fields in (
        (TRAIN_JOBS, ("spec", "status")),
        (JOB_SETS, ("spec",)),
        (CONFIG_MAPS, ("data",)),
        (SECRETS, ("type",)),
    ):
        for obj in await stage.list_all(gvr):
            # The cluster's own: the CA bundle of every namespace.
            if gvr == CONFIG_MAPS and not obj["metadata"].get("ownerReferences"):
                continue
            if obj["metadata"]["name"].endswith("-runtime-snapshot"):
                found["snapshot"] = describe_snapshot(obj, stage.namespace)
                continue
            found[f"{gvr.plural}/{obj['metadata']['name']}"] = describe(obj, stage.namespace, *fields)
    return found


async def describe_events(stage: Stage) -> set[tuple[str, str, str]]:
    """(type, reason, message) of the events that our controller sends about TrainJobs."""
    events = [event for event in await stage.list_all(EVENTS) if event["involvedObject"].get("kind") == "TrainJob"]
    return {(event["type"], event["reason"], mask(event["message"], stage.namespace)) for event in events}
