"""Sends the JobSets of `tests/unit/api/jobset_cases.py` to the cluster of $KUBECONFIG and stores its answers.

    python -m tools.record_jobset_refusals     (with a control plane that runs the real JobSet manager)

The result is what our own admission is compared with; run it again for a new version of JobSet.
"""

from __future__ import annotations

import json
import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.unit.api.jobset_cases import CREATED, UPDATED

TARGET = Path(__file__).parents[1] / "tests" / "unit" / "api" / "jobset_refusals.json"


def send(verb: str, body: dict[str, Any], *options: str) -> list[str]:
    """Nothing when it was let in, else each cause as kubectl prints it, without values that are whole lists."""
    command = ["kubectl", verb, *options, "-o", "name", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    head, found, rest = done.stderr.strip().partition(" is invalid: ")
    assert found, head
    return [mask(cause) for cause in (rest.split("\n* ")[1:] if rest.startswith("\n") else [rest])]


def mask(cause: str) -> str:
    return re.sub(r"Invalid value: \[.*\]: ", "Invalid value: [...]: ", cause)


def delete(name: str) -> None:
    command = ["kubectl", "delete", "jobset", name, "--ignore-not-found", "--wait=false"]
    subprocess.run(command, capture_output=True, check=False)


def get(name: str) -> dict[str, Any]:
    done = subprocess.run(["kubectl", "get", "jobset", name, "-o", "json"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    answers: dict[str, dict[str, list[str]]] = {"created": {}, "updated": {}}
    for name, body in CREATED.items():
        answers["created"][name] = send("create", body, "--dry-run=server")
    for number, (name, (body, change)) in enumerate(UPDATED.items()):
        named = deepcopy(body)
        named["metadata"]["name"] = f"js{number}"
        fault = send("create", named)
        assert not fault, f"{name}: {fault}"
        standing = get(f"js{number}")
        change(standing)
        standing["metadata"].pop("resourceVersion")
        answers["updated"][name] = send("replace", standing)
        delete(f"js{number}")
    TARGET.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    print(f"{len(CREATED) + len(UPDATED)} answers in {TARGET.name}")


if __name__ == "__main__":
    main()
