"""What was done to the jobs of training-operator 1.8 while they were recorded, and what of them is kept.

The recorder created each job, took a picture when its Pods ran, did what is written here, waited for the end and took
the last picture. Pods that hang end when their annotations change. Kept are the pictures and the events about jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.golden.folding import fold, hide_name
from tests.golden.masking import Object, drop_repetitions, drop_served, mask_captures, mask_events
from tools.golden_answers import read_refusal
from tools.golden_objects import read_objects

VERSION = "1.8"
POD_SECONDS = 4.0
STAGGER = 0.05
"""Seconds between the ends of Pods that were created together: the recorded ones ended one after the other."""
SETTLE, END = 0.7, 2.0
"""Seconds from the moment when the Pods ran, or the job had ended, to the picture."""
QUIET_SECONDS = 10.0
JOB_KINDS = ("pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "mxjobs")
KINDS = (
    *JOB_KINDS,
    "pods",
    "services",
    "configmaps",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "horizontalpodautoscalers",
    "podgroups-coscheduling",
    "podgroups-volcano",
)
REFUSED = ("bad-pt-negative-workers", "no-such-field")
_TERMINAL = ("Succeeded", "Failed")


def build_files(source: Path) -> dict[str, Any]:
    """File name -> its value: `parts.json`, which all cases refer to, and the cases."""
    folders = [path for path in sorted(source.iterdir()) if (path / "manifest.json").exists()]
    names = [path.name for path in folders]
    built = {
        path.name: hide_name(_build_case(path, [name for name in names if name.startswith(f"{path.name}-")]), path.name)
        for path in folders
    }
    folded, parts = fold(built)
    return {"parts.json": parts} | {f"cases/{name}.json": case for name, case in folded.items()}


def _build_case(folder: Path, longer: Iterable[str]) -> Object:
    """`longer`: names of other cases that begin with this one's. Their events were recorded with it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    case: Object = {"manifest": manifest, "podSeconds": POD_SECONDS}
    end = read_objects(folder, KINDS)
    if folder.name in REFUSED:
        note = (folder / "get.txt").read_text().removeprefix("note: ").strip()
        return {**case, "refused": read_refusal(note)}
    acts = list(build_acts(folder.name, folder, end))
    moments = [act["name"] for act in acts if act["do"] == "capture"]
    captures = {moment: read_objects(folder if moment == "end" else folder / moment, KINDS) for moment in moments}
    events = json.loads((folder / "events.json").read_text())
    kinds = {obj["kind"] for obj in manifest}
    kept = [event for event in events if event["involvedObject"]["kind"] in kinds]
    kept = [event for event in kept if event["involvedObject"]["name"] not in longer]
    masked = {moment: [drop_served(obj) for obj in objects] for moment, objects in mask_captures(captures).items()}
    return {
        **case,
        "controllerOnly": True,
        "stagger": STAGGER,
        "captures": masked,
        "acts": acts,
        "events": drop_repetitions(mask_events(kept)),
    }


def build_acts(name: str, folder: Path, end: Iterable[Object]) -> Iterator[Object]:
    if name.startswith("suspend"):
        yield from _suspend(name)
    elif name in _STEPS:
        yield from _STEPS[name](name)
    elif name.startswith("gang-"):
        yield _capture("podgroup-pending", 3.0)
        yield _capture("running", SETTLE)
    elif _is_picture_of_run(folder):
        yield _capture("running", SETTLE)
    if name.startswith("ttl-"):
        yield from _expire(folder)
    elif name == "twins":
        yield {"do": "wait", "after": 6.0}
    else:
        yield from _wait_for_end(end)
    yield {"do": "events", "after": END}
    yield _capture("end", 0.0)


def _is_picture_of_run(folder: Path) -> bool:
    """Of jobs that were expected to do nothing, `running` was recorded at the end."""
    running = folder / "running"
    return running.exists() and read_objects(running, KINDS) != read_objects(folder, KINDS)


def _wait_for_end(end: Iterable[Object]) -> Iterator[Object]:
    for obj in end:
        for condition in (obj.get("status") or {}).get("conditions") or ():
            if condition["type"] in _TERMINAL and condition["status"] == "True":
                yield {"do": "until", "condition": condition["type"]}
                return
    yield {"do": "wait", "after": QUIET_SECONDS}


def _capture(name: str, after: float) -> Object:
    return {"do": "capture", "name": name, "after": after}


def _patch_pod(name: str, annotations: Object) -> Object:
    return {"do": "patch", "kind": "Pod", "name": name, "patch": {"metadata": {"annotations": annotations}}}


def _complete(name: str, *pods: str) -> Iterator[Object]:
    for pod in pods:
        yield _patch_pod(f"{name}-{pod}", {"recipe/outcome": None, "recipe/after": "100ms"})


def _fail_once(name: str) -> Iterator[Object]:
    code = name.rpartition("-")[2] if name.startswith("exitcode") else "1"
    yield _capture("running", SETTLE)
    failing = {"recipe/outcome": "fail", "recipe/exit-code": code, "recipe/after": "100ms"}
    yield _patch_pod(f"{name}-worker-0", failing)
    yield _capture("failed-once", 4.0)
    master = () if "-tf-" in name else ("master-0",)
    yield from _complete(name, "worker-0", "worker-1", *master)
    yield {"do": "wait", "after": 4.0}


def _restart_in_place(name: str) -> Iterator[Object]:
    yield _capture("running", SETTLE)
    for count in (1, 2, 3):
        container = {
            "name": "pytorch",
            "image": "train:1",
            "imageID": "",
            "ready": True,
            "restartCount": count,
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }
        patch = {"status": {"containerStatuses": [container]}}
        yield {"do": "patch", "kind": "Pod", "name": f"{name}-worker-0", "subresource": "status", "patch": patch}
        yield _capture(f"restart-{count}", 1.5)


def _one_after_the_other(name: str) -> Iterator[Object]:
    first, then, moment = {
        "tf-all-workers": (("worker-0",), "worker-1", "worker-0-done"),
        "tf-worker-0-first": (("worker-1",), "worker-0", "worker-1-done"),
        "pt-worker-first": (("worker-0", "worker-1"), "master-0", "workers-done"),
    }[name]
    yield _capture("running", SETTLE)
    yield from _complete(name, *first)
    yield _capture(moment, 3.0)
    yield from _complete(name, then)


def _set_suspend(suspend: bool) -> Object:
    return {"do": "patch", "patch": {"spec": {"runPolicy": {"suspend": suspend}}}}


def _suspend(name: str) -> Iterator[Object]:
    while_running = name == "suspend-while-running"
    if while_running:
        yield _capture("running", SETTLE)
        yield _set_suspend(True)
    yield {"do": "until", "condition": "Suspended"}
    yield _capture("suspended", END + SETTLE)
    yield _set_suspend(False)
    yield _capture("resumed", SETTLE)
    if while_running:
        yield from _complete(name, "master-0", "worker-0", "worker-1")


def _scale(name: str) -> Iterator[Object]:
    yield _capture("running", SETTLE)
    for count in (3, 1):
        yield {"do": "patch", "patch": {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}}}
        yield _capture(f"scaled-to-{count}", 4.0)
    yield {"do": "patch", "subresource": "scale", "patch": {"spec": {"replicas": 2}}}
    yield _capture("scaled-by-kubectl", 4.0)
    yield from _complete(name, "worker-0", "worker-1")


def _pass_deadline(name: str) -> Iterator[Object]:
    yield _capture("running", SETTLE)
    yield {"do": "wait", "after": 12.0}
    poke = {"metadata": {"annotations": {"poke": "1"}}}
    if name == "deadline-pod-event":
        yield {"do": "patch", "kind": "Pod", "name": f"{name}-worker-0", "patch": poke}
    else:
        yield _capture("past-deadline", 0.0)
        yield {"do": "patch", "patch": poke}


def _delete_children(name: str) -> Iterator[Object]:
    yield _capture("running", SETTLE)
    yield {"do": "delete", "kind": "Pod", "name": f"{name}-worker-0"}
    yield {"do": "delete", "kind": "Service", "name": f"{name}-worker-1"}
    yield _capture("deleted", 4.0)
    yield from _complete(name, "master-0")


def _delete_job(name: str) -> Iterator[Object]:
    yield _capture("running", SETTLE)
    yield {"do": "delete"}
    if name == "recreated":
        yield {"do": "create"}
        yield _capture("recreated", 4.0)


def _watch_twins(name: str) -> Iterator[Object]:
    yield _capture("running", 6.0)


def _expire(folder: Path) -> Iterator[Object]:
    if (folder / "finished").exists():
        yield {
            "do": "until",
            "condition": "Failed" if "failed" in folder.name or "exit" in folder.name else "Succeeded",
        }
        yield _capture("finished", 0.2)
    yield {"do": "wait", "after": 20.0}


_STEPS = {
    **dict.fromkeys((f"exitcode-{code}" for code in ("1", "130", "137", "143", "tf-1", "tf-137")), _fail_once),
    "restart-onfailure": _fail_once,
    "restart-in-place-3": _restart_in_place,
    **dict.fromkeys(("tf-all-workers", "tf-worker-0-first", "pt-worker-first"), _one_after_the_other),
    "pt-scale": _scale,
    **dict.fromkeys(("deadline", "deadline-mpi", "deadline-pod-event"), _pass_deadline),
    "pod-deleted": _delete_children,
    **dict.fromkeys(("job-deleted", "job-deleted-mpi", "recreated"), _delete_job),
    "twins": _watch_twins,
}
