"""`kubectl scale` of an elastic PyTorchJob whose workers run as processes."""

from __future__ import annotations

import pytest

from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, Step, play, run, scenario

pytestmark = pytest.mark.wire

NAME = "pytorchjob.kubeflow.org/elastic"
WORKERS = "training.kubeflow.org/replica-type=worker"
REPLICAS = ".spec.pytorchReplicaSpecs.Worker.replicas"
INVALID = 'The PyTorchJob "elastic" is invalid: '


def wait_for(workers: int) -> Step:
    line = f"wait pytorchjob/elastic --for=jsonpath={{.status.replicaStatuses.Worker.active}}={workers} --timeout=60s"
    return run(line, out=f"{NAME} condition met", since=23)


SCENARIOS = [
    scenario(
        "a running job is scaled",
        run("create -f pytorchjob.yaml", out=f"{NAME} created"),
        run("wait pytorchjob/elastic --for=condition=Running --timeout=60s", out=f"{NAME} condition met"),
        run("scale pytorchjob elastic --replicas=3", out=f"{NAME} scaled"),
        wait_for(3),
        run(
            f"get pods -l {WORKERS} -o name",
            out="pod/elastic-worker-0\npod/elastic-worker-1\npod/elastic-worker-2",
            since=23,
        ),
        run("get --raw /apis/kubeflow.org/v1/namespaces/{ns}/pytorchjobs/elastic/scale", out=None),
        run(
            "get pytorchjob elastic --subresource=scale", out="NAME DESIRED AVAILABLE AGE\nelastic 3 3 <age>", since=27
        ),
        run("scale pytorchjob elastic --replicas=1 --current-replicas=3", out=f"{NAME} scaled"),
        wait_for(1),
        run(f"get pods -l {WORKERS} -o name", out="pod/elastic-worker-0", since=23),
    ),
    scenario(
        "preconditions and impossible numbers are refused",
        run("create -f pytorchjob.yaml", out=f"{NAME} created"),
        run(
            "scale pytorchjob elastic --replicas=4 --current-replicas=7",
            rc=1,
            err="error: Expected replicas to be 7, was 2",
        ),
        run(
            "scale pytorchjob elastic --replicas=4 --resource-version=1",
            rc=1,
            err="error: Expected resource version to be 1, was <int>",
        ),
        run("scale pytorchjob nosuch --replicas=4", rc=1, err=None),
        run("get pytorchjob elastic -o jsonpath={" + REPLICAS + "}", out="2"),
        run("scale pytorchjob elastic --replicas=0", rc=1, err="<any>must be at least 1<any>"),
        run(
            "patch pytorchjob elastic --type=merge "
            """-p '{"spec":{"pytorchReplicaSpecs":{"Worker":{"replicas":-1}}}}'""",
            rc=1,
            err=f"{INVALID}{REPLICAS}: Invalid value: -1: should be a non-negative integer",
        ),
    ),
]


def test_scenarios(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)
