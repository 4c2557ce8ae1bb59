"""Evidence of a tenant's job: read as the tenant's user, and shown to nobody else."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.attacks.site import Site, unique

pytestmark = pytest.mark.attacks

PROGRAM = """
import os, time
def keep_secret():
    print("uid", os.getuid(), flush=True)
    time.sleep(600)
keep_secret()
"""
TRAINER = "trainer.kubeflow.org/v1alpha1"
_SECONDS = 60


def start_job(site: Site) -> str:
    name = unique("hang")
    trainer = {"image": "plain", "numNodes": 1, "command": ["python3", "-c", PROGRAM]}
    job = {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": name}}
    site.ann.kube.create(
        site.ann.path("trainjobs", group=TRAINER),
        {**job, "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer}},
    )
    return name


def collect(site: Site, name: str) -> Any:
    deadline = time.monotonic() + _SECONDS
    while True:
        code, answer = site.ann.rest.call("POST", f"/api/v1/jobs/{name}/evidence")
        if code == 200 and answer["ranks"][0]["lines"]:
            return answer
        assert code in (200, 409) and time.monotonic() < deadline, answer
        time.sleep(0.2)


def test_only_the_tenant_sees_it_and_its_own_user_has_read_it(site: Site) -> None:
    name = start_job(site)
    try:
        (rank,) = collect(site, name)["ranks"]
        assert rank["lines"][-1] != "uid 0", "it runs as the tenant's own user"
        (process,) = rank["processes"]
        assert process["stacks"], process["error"]
        assert process["stacks"][0]["frames"][0]["function"] == "keep_secret"
        for method in ("GET", "POST"):
            code, answer = site.bob.rest.call(method, f"/api/v1/jobs/{name}/evidence?namespace=ann")
            assert code == 403 and "keep_secret" not in str(answer)
        home = site.server.home
        printed = site.bob.run_pod(
            unique("probe"), f"ls {home}/history/results; cat {home}/history/results/*/evidence/*; true"
        )
        assert "keep_secret" not in printed
    finally:
        site.ann.kube.delete(site.ann.path("trainjobs", name, group=TRAINER))
