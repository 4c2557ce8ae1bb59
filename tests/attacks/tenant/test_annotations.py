"""A tenant writes into every annotation and label that the server acts on what nobody expects there."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.attacks.site import Caller, Site, unique
from trainmaster.api import labels

pytestmark = pytest.mark.attacks

GROUP = "trainer.kubeflow.org/v1alpha1"
KEYS = sorted(
    {
        value
        for name, value in vars(labels).items()
        if name.isupper() and isinstance(value, str) and "/" in value and value != labels.MIRROR
    }
)
NONSENSE = ["9" * 4400, "²", "٣", "-1", "1e9", "[]", "{}", "null", '{"labels": 1, "annotations": [1]}', "[" * 3000]
NONSENSE += ["../../../../etc", "\n\n0.0.0.0 evil\n", "true", '{"reason": 1, "message": [], "since": {}}', "a" * 2000]
SKIPPED = {labels.PACKAGES, labels.ENVIRONMENT, labels.DEVICES, labels.RESTART}
SKIPPED |= {labels.EXCLUSIVE_TOPOLOGY, labels.NODE_SELECTOR_STRATEGY}
SKIPPED |= {labels.ON_STALL, labels.STOP_ON_SAME_FAILURE}
SKIPPED |= {labels.KEEP_CHECKPOINTS, labels.KEEP_CHECKPOINTS_EVERY, labels.RESUME_FROM}
"""Have tests of their own, or are refused with a sentence."""


OWN = re.compile(r"([\w./-]+) is written by controllers only")


def build_notes(number: int) -> dict[str, str]:
    return {key: NONSENSE[(number + place) % len(NONSENSE)] for place, key in enumerate(KEYS) if key not in SKIPPED}


def drop(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: drop(one, keys) for key, one in value.items() if key not in keys}
    return [drop(one, keys) for one in value] if isinstance(value, list) else value


def create(caller: Caller, resource: str, obj: dict[str, Any]) -> None:
    """Without the annotations of controllers, where they are refused."""
    path = caller.path(resource, group=GROUP)
    code, answer = caller.kube.call("POST", path, obj)
    for _ in KEYS:
        if code != 403:
            break
        obj = drop(obj, set(OWN.findall(answer["message"])))
        code, answer = caller.kube.call("POST", path, obj)
    assert code == 201, str(answer)[:2000]


def build_runtime(name: str, number: int) -> dict[str, Any]:
    container = {"name": "node", "image": "python", "command": ["true"]}
    pod = {"metadata": {"annotations": build_notes(number)}, "spec": {"containers": [container]}}
    marks = {labels.ANCESTOR_STEP: "trainer"}
    job = {"metadata": {"annotations": build_notes(number + 5), "labels": marks}, "spec": {"template": pod}}
    jobset = {"annotations": build_notes(number + 7)}
    spec = {"replicatedJobs": [{"name": "node", "template": job}]}
    return {
        "apiVersion": GROUP,
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "annotations": build_notes(number + 3), "labels": {labels.FRAMEWORK: "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"metadata": jobset, "spec": spec}},
    }


def wait_until_over(caller: Caller, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        job: dict[str, Any] = caller.kube.get(caller.path("trainjobs", name, group=GROUP))
        found = {entry["type"]: entry["status"] for entry in job.get("status", {}).get("conditions") or ()}
        if found.get("Complete") == "True" or found.get("Failed") == "True":
            return job
        assert time.monotonic() < deadline, job.get("status")
        time.sleep(0.1)


@pytest.mark.parametrize("number", range(0, len(NONSENSE), 3))
def test_nonsense_in_annotations_stops_neither_the_job_nor_the_server(site: Site, number: int) -> None:
    name = unique("odd")
    create(site.ann, "trainingruntimes", build_runtime(name, number))
    body = {
        "apiVersion": GROUP,
        "kind": "TrainJob",
        "metadata": {"name": name, "annotations": build_notes(number)},
        "spec": {"runtimeRef": {"name": name, "kind": "TrainingRuntime"}},
    }
    create(site.ann, "trainjobs", body)
    job = wait_until_over(site.ann, name)
    assert any(entry["type"] == "Complete" for entry in job["status"]["conditions"]), job["status"]
    for path in ("", "/logs", "/events"):
        code, answer = site.ann.rest.call("GET", f"/api/v1/jobs/{name}{path}")
        assert code < 500, answer
    code, answer = site.ann.rest.call("POST", f"/api/v1/jobs/{name}/restart", {})
    assert code < 500, answer
    site.ann.kube.delete(site.ann.path("trainjobs", name, group=GROUP))
    is_broken = "Traceback" in site.server.log  # apart: pytest would compare a long log with one word, letter by letter
    assert not is_broken, site.server.log[-4000:]
