"""Whether a machine could ever hold a job, told before it is submitted."""

from __future__ import annotations

import pytest

from trainmaster.api.meta import Object
from trainmaster.cli.launch.capacity import explain_room
from trainmaster.jobs.compose.request import JobRequest

pytestmark = pytest.mark.unit

MACHINE: Object = {"status": {"allocatable": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "0"}}}
SMALL: Object = {"status": {"allocatable": {"cpu": "4", "pods": "100"}}}
BIG: Object = {"status": {"allocatable": {"cpu": "4", "memory": "24581700Ki", "nvidia.com/gpu": "2"}}}


def explain(nodes: int, machines: list[Object], **resources: str) -> str | None:
    return explain_room(JobRequest("job", nodes=nodes, resources=resources), machines)


def test_what_fits_is_not_talked_about() -> None:
    assert explain(2, [MACHINE], cpu="2", memory="8Gi") is None
    assert explain(1, [MACHINE], cpu="500m") is None
    assert explain(4, [MACHINE, BIG], cpu="2") is None
    assert explain_room(JobRequest("job", nodes=5, resources={"cpu": "1"}, overcommits=True), [MACHINE]) is None
    assert explain(100, [SMALL]) is None
    assert explain(101, [SMALL, SMALL]) is None
    assert explain(101, []) is None


@pytest.mark.parametrize(
    ("nodes", "machine", "resources", "want"),
    [
        (
            4,
            MACHINE,
            {"memory": "8Gi"},
            "4 nodes with 8Gi memory each can never run here: the machine has 16Gi for jobs; "
            "use --nodes 2, or a smaller --memory",
        ),
        (1, BIG, {"memory": "64Gi"}, "the machine has 23.4Gi for jobs; use a smaller --memory"),
        (
            1,
            MACHINE,
            {"cpu": "5"},
            "the machine has 4 for jobs; use a smaller --cpu, or --overcommit to let the nodes share the CPUs",
        ),
        (
            101,
            SMALL,
            {},
            "101 nodes can never run here: at most 100 Pods run at the same time (setting node.pods); "
            "use --nodes 100 or less",
        ),
        (1, MACHINE, {"nvidia.com/gpu": "1"}, "this machine has no nvidia.com/gpu; leave out --gpu"),
    ],
)
def test_what_never_fits_is_told_with_what_would(
    nodes: int, machine: Object, resources: dict[str, str], want: str
) -> None:
    text = explain(nodes, [machine], **resources)
    assert text is not None
    assert want in text
