"""What a Pod takes of a node, by Kubernetes' rules."""

from __future__ import annotations

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.pods.requests import count_requests, render_amount

pytestmark = pytest.mark.unit


def container(cpu: str, **fields: str) -> Object:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **fields}


@pytest.mark.parametrize(
    ("spec", "want_cpu"),
    [
        pytest.param({"containers": [container("1"), container("250m")]}, 1250, id="containers add up"),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("3")]}, 3000, id="the larger of both"
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("2"), container("3")]},
            3000,
            id="init containers run one by one",
        ),
        pytest.param(
            {
                "containers": [container("1")],
                "initContainers": [container("1", restartPolicy="Always"), container("2")],
            },
            3000,
            id="a sidecar runs beside what follows it",
        ),
        pytest.param(
            {
                "containers": [container("1")],
                "initContainers": [container("2"), container("1", restartPolicy="Always")],
            },
            2000,
            id="and not beside what came before",
        ),
        pytest.param({"containers": [container("1")], "overhead": {"cpu": "100m"}}, 1100, id="overhead on top"),
        pytest.param(
            {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}, 4000, id="the Pod's own requests"
        ),
        pytest.param({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000, id="limits alone"),
        pytest.param({"containers": [container("0.1m")]}, 1, id="rounded up"),
    ],
)
def test_requests_are_added_up_as_upstream_does(spec: Object, want_cpu: int) -> None:
    assert count_requests(spec) == {"cpu": want_cpu, "pods": 1}


def test_every_resource_is_counted_in_its_own_unit() -> None:
    amounts = {"memory": "1.5Gi", "nvidia.com/gpu": "2", "ephemeral-storage": "1G", "cpu": "0"}
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts}}]}
    want = {"memory": 1536 * 1024**2, "nvidia.com/gpu": 2, "ephemeral-storage": 10**9, "pods": 1}
    assert count_requests(spec) == want


def test_amounts_are_shown_as_people_write_them() -> None:
    shown = [render_amount(*pair) for pair in (("cpu", 2500), ("memory", 3 * 1024**3), ("memory", 100), ("x/gpu", 2))]
    assert shown == ["2.5", "3Gi", "100", "2"]
