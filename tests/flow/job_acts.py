"""Lives of bare Jobs as a few acts each: create, let a Pod end, delete one, change the spec, wait.

`tools/record_job_acts.py` plays them on the real control plane and stores what is there after each act in
`job_acts.json`; `test_job_recorded.py` plays them on ours and compares. There is no node in either: what Pods do is
written into their status, and a deleted Pod is gone at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Act:
    """`pod`: the position of an active Pod, by index, that ends with `code` or is deleted. `patch`: of the Job."""

    pod: int = -1
    code: int = 0
    is_deleted: bool = False
    patch: Object = field(default_factory=dict)
    seconds: float = 0.0
    condition: str = ""


def make(name: str, **spec: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:1"}]}
    body = {"backoffLimit": 6, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def indexed(name: str, count: int = 2, **spec: Any) -> Object:
    return make(name, completionMode="Indexed", completions=count, parallelism=count, **spec)


def end(pod: int, code: int = 0, condition: str = "") -> Act:
    return Act(pod, code, condition=condition)


def change(**spec: Any) -> Act:
    return Act(patch={"spec": spec})


def rule(action: str, *codes: int, **more: Any) -> Object:
    matcher = {"onExitCodes": {"operator": "In", "values": list(codes)}} if codes else {}
    return {"podFailurePolicy": {"rules": [{"action": action, **matcher, **more}]}}


WAIT = Act(seconds=12)
DELETE = Act(0, is_deleted=True)
_DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
_LIMITED = {"backoffLimitPerIndex": 1}

_LIVES: Sequence[tuple[Object, Sequence[Act]]] = (
    (indexed("indexed"), [end(0), end(0)]),
    (make("queue", completions=3, parallelism=2), [end(0), end(0), end(0)]),
    (make("any", parallelism=2), [end(0), end(0, 1)]),
    (indexed("limit", backoffLimit=0), [end(0, 1)]),
    (indexed("retry", 1), [end(0, 1), WAIT, end(0)]),
    (make("again", completions=1, backoffLimit=1), [end(0, 1), WAIT, end(0, 1)]),
    (indexed("lost", 2), [DELETE, WAIT]),
    (make("removed", completions=1, backoffLimit=0), [DELETE]),
    (indexed("each", **_LIMITED), [end(0, 1), WAIT, end(0, 1), end(0)]),
    (indexed("most", 3, backoffLimitPerIndex=0, maxFailedIndexes=0), [end(1, 1)]),
    (indexed("failjob", **rule("FailJob", 42)), [end(1, 42)]),
    (indexed("disrupted", **rule("FailJob", **_DISRUPTED)), [end(0, 1, "DisruptionTarget")]),
    (indexed("failindex", backoffLimitPerIndex=3, **rule("FailIndex", 42)), [end(0, 42), end(0)]),
    (indexed("ignored", 1, backoffLimit=0, **rule("Ignore", 42)), [end(0, 42), WAIT, end(0)]),
    (indexed("counted", 1, backoffLimit=0, **rule("Count", 42)), [end(0, 42)]),
    (indexed("enough", 3, successPolicy={"rules": [{"succeededIndexes": "1,2", "succeededCount": 1}]}), [end(1)]),
    (indexed("pause"), [change(suspend=True), change(suspend=False), end(0)]),
    (make("born-paused", suspend=True), [change(suspend=False)]),
    (make("pace", completions=5, parallelism=3), [change(parallelism=1), change(parallelism=2)]),
    (indexed("elastic"), [end(1), change(parallelism=1, completions=1), change(parallelism=3, completions=3)]),
    (indexed("shrunk"), [end(0), change(parallelism=1, completions=1)]),
    (make("late", activeDeadlineSeconds=12), [WAIT]),
    (make("nothing", completions=0), []),
    (make("nothing-paused", completions=0, suspend=True), []),
    # Upstream's finalizer holds this Pod until the collector of Pods ends it, within 20 s: record again if it was late.
    (make("replaced", completions=1, podReplacementPolicy="Failed"), [DELETE, WAIT]),
)
LIVES: Mapping[str, tuple[Object, Sequence[Act]]] = {body["metadata"]["name"]: (body, acts) for body, acts in _LIVES}


def build_pod_status(act: Act, moment: str) -> Object:
    ended = {"exitCode": act.code, "finishedAt": moment, "startedAt": moment, "reason": "Done"}
    container = {"name": "main", "image": "i:1", "imageID": "", "ready": False, "restartCount": 0}
    conditions = [{"type": act.condition, "status": "True"}] if act.condition else []
    phase = "Failed" if act.code else "Succeeded"
    return {
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [{**container, "state": {"terminated": ended}}],
    }


def list_active(pods: Sequence[Object]) -> list[Object]:
    active = [pod for pod in pods if pod.get("status", {}).get("phase", "Pending") not in ("Succeeded", "Failed")]
    return sorted((pod for pod in active if "deletionTimestamp" not in pod["metadata"]), key=_get_place)


def _get_place(pod: Object) -> tuple[int, str]:
    index = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", "0")
    return int(index), pod["metadata"]["name"]


def capture(job: Object, pods: Sequence[Object], events: Sequence[Sequence[str]]) -> Object:
    """What must be equal: the status, the Pods without their names, and what was said."""
    shown = [_show_pod(pod) for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    text = json.dumps([_mask_times(job.get("status") or {}), sorted(shown, key=str), sorted(events)])
    text = re.sub(rf"\b{name}(-\d+)?-[a-z0-9]{{5}}\b", rf"{name}\1-xxxxx", text.replace(uid, "UID"))
    status, made, said = json.loads(text)
    return {"status": status, "pods": made, "events": sorted(said)}


def _mask_times(status: Object) -> Object:
    conditions = [
        {key: value for key, value in condition.items() if not key.endswith("Time")}
        for condition in status.get("conditions", ())
    ]
    kept = {key: "T" if key.endswith("Time") else value for key, value in status.items()}
    return {**kept, "conditions": conditions}


def _show_pod(pod: Object) -> Object:
    meta, spec = pod["metadata"], pod["spec"]
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if not k.startswith("trainmaster.dev/")}
    return {
        "phase": pod.get("status", {}).get("phase", "Pending"),
        "generateName": meta["generateName"],
        "labels": meta["labels"],
        "annotations": annotations,
        "hostname": spec.get("hostname"),
        "env": spec["containers"][0].get("env"),
        "owners": [(owner["kind"], owner["name"], owner["controller"]) for owner in meta["ownerReferences"]],
    }
