"""Runs the scenarios of `tests/flow/jobset_acts.py` on the cluster of $KUBECONFIG and records the state after each act.

python -m tools.record_jobset_acts     (with a control plane that runs the real JobSet manager, and no nodes)
"""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.flow.jobset_acts import LIVES, Act, build_pod_status, capture, compact

TARGET = Path(__file__).parents[1] / "tests" / "flow" / "jobset_acts.json"
QUIET = 3.0
"""Seconds without a change before a picture is taken; the Job controller works in batches of one second."""


def kubectl(*words: str, body: Any = None) -> str:
    text = None if body is None else json.dumps(body)
    return subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, check=True).stdout


def list_all(kind: str, selector: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl("get", kind, "-o", "json", "-l", selector))["items"]
    return items


def list_events(name: str) -> list[list[str]]:
    found = json.loads(kubectl("get", "events.v1.events.k8s.io", "-o", "json"))["items"]
    mine = [one for one in found if one["regarding"].get("kind") == "JobSet" and one["regarding"]["name"] == name]
    return [list(said) for said in sorted({(one["type"], one["reason"], one["note"]) for one in mine})]


def picture(name: str) -> dict[str, Any]:
    jobset = json.loads(kubectl("get", "jobset", name, "-o", "json"))
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    uid = jobset["metadata"]["uid"]
    services = [
        one
        for one in list_all("services")
        if any(reference["uid"] == uid for reference in one["metadata"].get("ownerReferences", ()))
    ]
    return capture(jobset, list_all("jobs", selector), services, list_all("pvc", selector), list_events(name))


def settle(name: str) -> dict[str, Any]:
    last, since = picture(name), time.time()
    while time.time() - since < QUIET:
        time.sleep(0.3)
        now = picture(name)
        if now != last:
            last, since = now, time.time()
    return last


def play(name: str, act: Act) -> None:
    if act.patch:
        kubectl("patch", "jobset", name, "--type=merge", "-p", json.dumps(act.patch))
        return
    status = build_pod_status(act.verb, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    for pod in list_all("pods", f"job-name={act.job}"):
        patch = json.dumps({"status": status})
        kubectl("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p", patch)


def main() -> None:
    pictures: dict[str, list[dict[str, Any]]] = {}
    for name, (body, acts) in LIVES.items():
        kubectl("create", "-f", "-", body=body)
        pictures[name] = [settle(name)]
        for act in acts:
            play(name, act)
            pictures[name].append(settle(name))
        print(f"{name}: {len(pictures[name])} pictures")
    rows = (f"{json.dumps(name)}: {json.dumps(compact(pictures[name]), sort_keys=True)}" for name in sorted(pictures))
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
