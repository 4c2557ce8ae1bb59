"""Two tenants on one server: each trains with kubectl and a token, as a Unix user of its own, and sees only itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.shell import Person

pytestmark = pytest.mark.e2e

JOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "who"},
    "spec": {
        "runtimeRef": {"name": "plain"},
        "trainer": {"numNodes": 1, "command": ["sh", "-c", "id -u; touch mine && echo wrote; cat /etc/shadow; true"]},
    },
}


def ask(person: Person, kubectl: Path, token: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
    """kubectl with nothing but an address, a CA and a token."""
    server = person.trainmaster("status", "-o", "json").json["server"]
    access = ["--server", server, "--certificate-authority", str(person.home / "pki" / "ca.crt"), "--token", token]
    environ = {"PATH": os.environ["PATH"], "HOME": str(person.home), "KUBECONFIG": os.devnull}
    command = [str(kubectl), *access, *arguments]
    done = subprocess.run(command, env=environ, input=stdin, capture_output=True, text=True, timeout=90)
    return done.returncode, done.stdout + done.stderr


def test_tenants_train_side_by_side_and_see_only_themselves(person: Person, kubectl_path: Path) -> None:
    person.must("up", "--detach")
    level = json.loads(person.kubectl("get", "node", "local", "-o", "json"))["metadata"]["annotations"]
    walls = [] if level["trainmaster.dev/isolation"] == "full" else ["--without-walls"]
    ann, bob = (json.loads(person.must("tenant", "add", name, *walls, "-o", "json")) for name in ("ann", "bob"))
    assert (ann["tenant"], ann["namespace"]) == ("ann", "ann")

    code, said = ask(person, kubectl_path, ann["token"], "-n", "ann", "create", "-f", "-", stdin=json.dumps(JOB))
    assert code == 0, said
    wait = ("-n", "ann", "wait", "--for=condition=Complete", "trainjob/who", "--timeout=60s")
    code, said = ask(person, kubectl_path, ann["token"], *wait)
    assert code == 0, said
    logs = ("-n", "ann", "logs", "-l", "jobset.sigs.k8s.io/jobset-name=who")
    code, printed = ask(person, kubectl_path, ann["token"], *logs)
    assert code == 0, printed
    if not walls:
        assert "611000" in printed
        assert "wrote" in printed
        assert "Permission denied" in printed

    for arguments in (("-n", "ann", "get", "trainjobs"), logs, ("get", "namespaces"), ("get", "trainjobs", "-A")):
        code, said = ask(person, kubectl_path, bob["token"], *arguments)
        assert code == 1, said
        assert "cannot" in said

    person.must("tenant", "rotate", "ann")
    code, said = ask(person, kubectl_path, ann["token"], "-n", "ann", "get", "trainjobs")
    assert code == 1
    assert "Unauthorized" in said
    person.must("tenant", "disable", "bob")
    assert ask(person, kubectl_path, bob["token"], "-n", "bob", "get", "trainjobs")[0] == 1
    listed = json.loads(person.must("tenant", "list", "-o", "json"))
    assert {entry["name"]: entry["state"] for entry in listed} == {"ann": "Active", "bob": "Disabled"}
    person.must("tenant", "delete", "bob", "--yes")
    assert person.trainmaster("tenant", "rotate", "bob").code == 7
