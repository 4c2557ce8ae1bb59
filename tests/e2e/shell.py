"""Runs the installed command the way a person does: a process, a home, an exit code, text on the screen."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kubectl import SHORT_LIVED
from tests.support.server import clean_environ, command

_TRIES = 300
"""Each is a pause and a whole kubectl, so this is half a minute and more."""
PAUSE = 0.1


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value


class Person:
    """At a terminal, with one home and a kubectl."""

    def __init__(self, home: Path, kubectl: Path) -> None:
        self.home = home
        self.kubectl_path = kubectl

    def trainmaster(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Answer:
        full = clean_environ({"TRAINMASTER_HOME": str(self.home), **(environ or {})})
        return _run(command(*arguments), full)

    def must(self, *arguments: str) -> str:
        answer = self.trainmaster(*arguments)
        assert answer.code == 0, f"trainmaster {' '.join(arguments)}: exit {answer.code}\n{answer.out}{answer.err}"
        return answer.out

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")}
        answer = _run([str(self.kubectl_path), *arguments], {**environ, **SHORT_LIVED}, stdin)
        assert answer.code == 0, f"kubectl {' '.join(arguments)}: {answer.err}"
        return answer.out

    def submit(self, name: str, script: str, *, nodes: int = 1, cpu: str = "") -> None:
        """Submits a TrainJob whose nodes run a shell script."""
        requests = {"cpu": cpu} if cpu else {}
        trainer = {"numNodes": nodes, "command": ["sh", "-c", script], "resourcesPerNode": {"requests": requests}}
        metadata = {"name": name, "namespace": "default"}
        spec = {"runtimeRef": {"name": "plain"}, "trainer": trainer}
        job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
        self.kubectl("create", "-f", "-", stdin=json.dumps(job))

    def train(self, name: str, script: str, *, cpu: str = "") -> None:
        """Submits a TrainJob of one node that runs a shell script, and returns when its Pod runs."""
        self.submit(name, script, cpu=cpu)
        for _ in range(_TRIES):
            if [pod["status"]["phase"] for pod in self.pods(name)] == ["Running"]:
                return
            time.sleep(PAUSE)
        raise AssertionError(f"the Pod of {name} does not run: {self.pods(name)}")

    def pods(self, job: str) -> list[dict[str, Any]]:
        text = self.kubectl("get", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={job}", "-o", "json")
        items: list[dict[str, Any]] = json.loads(text)["items"]
        return items


def _run(arguments: list[str], environ: Mapping[str, str], stdin: str = "") -> Answer:
    done = subprocess.run(arguments, env=dict(environ), input=stdin, capture_output=True, text=True, timeout=90)
    return Answer(done.returncode, done.stdout, done.stderr)
