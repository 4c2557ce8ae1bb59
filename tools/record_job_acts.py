"""Runs the scenarios of `tests/flow/job_acts.py` on the cluster of $KUBECONFIG and records the state after each act.

python -m tools.record_job_acts     (with a control plane that runs the real Job controller, and no nodes)
"""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.flow.job_acts import LIVES, Act, build_pod_status, capture, list_active

TARGET = Path(__file__).parents[1] / "tests" / "flow" / "job_acts.json"
QUIET = 4.0
"""Seconds without a change before a picture is taken; the Job controller works in batches of one second."""


def kubectl(*words: str, body: Any = None) -> str:
    text = None if body is None else json.dumps(body)
    return subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, check=True).stdout


def get(*words: str) -> Any:
    return json.loads(kubectl("get", *words, "-o", "json"))


def list_pods(name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = get("pods", "-l", f"job-name={name}")["items"]
    return items


def picture(name: str) -> dict[str, Any]:
    events = [
        (one["type"], one["reason"], one["message"])
        for one in get("events", "--field-selector", f"involvedObject.kind=Job,involvedObject.name={name}")["items"]
    ]
    return capture(get("job", name), list_pods(name), events)


def settle(name: str) -> dict[str, Any]:
    last, since = picture(name), time.time()
    while time.time() - since < QUIET:
        time.sleep(0.5)
        now = picture(name)
        if now != last:
            last, since = now, time.time()
    return last


def play(name: str, act: Act) -> None:
    if act.seconds:
        time.sleep(act.seconds)
    elif act.patch:
        kubectl("patch", "job", name, "--type=merge", "-p", json.dumps(act.patch))
    else:
        pod = list_active(list_pods(name))[act.pod]["metadata"]["name"]
        if act.is_deleted:
            kubectl("delete", "pod", pod, "--wait=false")
            return
        status = build_pod_status(act, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        patch = json.dumps({"status": status})
        kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", patch)


def live(name: str) -> list[dict[str, Any]]:
    body, acts = LIVES[name]
    kubectl("create", "-f", "-", body=body)
    pictures = [settle(name)]
    for act in acts:
        play(name, act)
        pictures.append(settle(name))
    return pictures


def main() -> None:
    with ThreadPoolExecutor(5) as pool:
        found = dict(zip(LIVES, pool.map(live, LIVES), strict=True))
    rows = (f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found))
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"{sum(map(len, found.values()))} pictures of {len(found)} lives")


if __name__ == "__main__":
    main()
