"""Sends the Jobs of `tests/unit/api/job_cases.py` to the cluster of $KUBECONFIG and stores its answers.

    python -m tools.record_job_refusals

The result is what our own admission is compared with; run it again for a new version of Kubernetes.
"""

from __future__ import annotations

import json
import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.unit.api.job_cases import CREATED, STATUSES, UPDATED, with_status

TARGET = Path(__file__).parents[1] / "tests" / "unit" / "api" / "job_refusals.json"


def send(verb: str, body: dict[str, Any], *options: str) -> list[str]:
    """Nothing when it was let in, else each cause as kubectl prints it, without values that are whole structures."""
    command = ["kubectl", verb, *options, "-o", "name", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    head, found, rest = done.stderr.strip().partition(" is invalid: ")
    assert found, head
    return [mask(cause) for cause in (rest.split("\n* ")[1:] if rest.startswith("\n") else [rest])]


def mask(cause: str) -> str:
    """Values that are structures are written in the server's own language; uids differ."""
    cause = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", cause)
    return re.sub(r"(Invalid value: )(\{.*\}|\[.*\]|null|[a-z0-9.]*\{.*\}): ", r"\1...: ", cause)


def make(body: dict[str, Any], name: str) -> dict[str, Any]:
    named = deepcopy(body)
    named["metadata"]["name"] = name
    fault = send("create", named)
    assert not fault, f"{name}: {fault}"
    return get(name)


def get(name: str) -> dict[str, Any]:
    done = subprocess.run(["kubectl", "get", "job", name, "-o", "json"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    found["metadata"].pop("resourceVersion")
    return found


def main() -> None:
    answers: dict[str, dict[str, list[str]]] = {"created": {}, "updated": {}, "statuses": {}}
    for name, body in CREATED.items():
        answers["created"][name] = send("create", body, "--dry-run=server")
    for number, (name, (body, change)) in enumerate(UPDATED.items()):
        standing = make(body, f"u{number}")
        change(standing)
        answers["updated"][name] = send("replace", standing)
    for number, (name, (body, (before, after))) in enumerate(STATUSES.items()):
        standing = make(body, f"s{number}")
        if before:
            fault = send("replace", with_status(standing, before), "--subresource=status")
            assert not fault, f"{name}: {fault}"
        answers["statuses"][name] = send("replace", with_status(standing, after), "--subresource=status")
    TARGET.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    print(f"{sum(map(len, answers.values()))} answers in {TARGET.name}")


if __name__ == "__main__":
    main()
