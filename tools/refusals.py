"""Sends manifests to a real API server with kubectl and returns its refusals. Shared by the recorders.

Used by `record_job_refusals` and `record_jobset_refusals`; our admission is compared with the answers. It talks to the
cluster of $KUBECONFIG, and what it makes there stays unless it is deleted.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

Object = dict[str, Any]
Answers = dict[str, dict[str, list[str]]]


class Recorder:
    def __init__(self, kind: str, mask: Callable[[str], str]) -> None:
        """`mask`: a cause without what differs from server to server, or is written in its own language."""
        self._kind = kind
        self._mask = mask

    def send(self, verb: str, body: Object, *options: str) -> list[str]:
        """The causes as kubectl prints them; empty if the object was accepted."""
        command = ["kubectl", verb, *options, "-o", "name", "-f", "-"]
        done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return []
        head, found, rest = done.stderr.strip().partition(" is invalid: ")
        assert found, head
        return [self._mask(cause) for cause in (rest.split("\n* ")[1:] if rest.startswith("\n") else [rest])]

    def make(self, body: Object, name: str) -> Object:
        """Creates it under that name; returns it as the server has it, ready to be replaced."""
        named = deepcopy(body)
        named["metadata"]["name"] = name
        fault = self.send("create", named)
        assert not fault, f"{name}: {fault}"
        command = ["kubectl", "get", self._kind, name, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: Object = json.loads(done.stdout)
        found["metadata"].pop("resourceVersion")
        return found

    def delete(self, name: str) -> None:
        command = ["kubectl", "delete", self._kind, name, "--ignore-not-found", "--wait=false"]
        subprocess.run(command, capture_output=True, check=False)


def store(answers: Answers, target: Path) -> None:
    target.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    print(f"{sum(map(len, answers.values()))} answers in {target.name}")
