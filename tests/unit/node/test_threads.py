"""OMP_NUM_THREADS: a share of the CPUs for each process."""

from __future__ import annotations

import pytest

from trainmaster.node.threads import node_env, threads_env

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("limits", "requests", "processes", "want"),
    [
        pytest.param({"cpu": "8"}, {"cpu": "2"}, "2", "4", id="the limit is shared out"),
        pytest.param({}, {"cpu": "6"}, "2", "3", id="else the request"),
        pytest.param({"cpu": "500m"}, {}, "1", "1", id="never less than one"),
        pytest.param({"cpu": "64"}, {}, "1", "16", id="never more than the machine has"),
        pytest.param({}, {}, "4", "4", id="without requests the machine is shared out"),
        pytest.param({}, {}, "1", None, id="one process without requests may use everything"),
        pytest.param({"cpu": "8"}, {}, "auto", "1", id="one process per CPU"),
        pytest.param({"cpu": "8", "nvidia.com/gpu": "2"}, {}, "gpu", "4", id="one process per GPU"),
        pytest.param({"cpu": "8", "nvidia.com/gpu": "2"}, {}, "auto", "4", id="GPUs before CPUs"),
    ],
)
def test_each_process_gets_its_share(
    limits: dict[str, str], requests: dict[str, str], processes: str, want: str | None
) -> None:
    env = [{"name": "PET_NPROC_PER_NODE", "value": processes}]
    container = {"name": "node", "env": env, "resources": {"limits": limits, "requests": requests}}
    assert threads_env(container, 16) == ({} if want is None else {"OMP_NUM_THREADS": want})


def test_a_container_hears_of_its_gpus_and_its_threads() -> None:
    notes = {"trainmaster.dev/devices": '{"node":[{"index":3,"id":"GPU-x"}]}'}
    pod = {"metadata": {"name": "p", "annotations": notes}, "spec": {}}
    container = {"name": "node", "resources": {"limits": {"cpu": "4"}}}
    found = node_env(pod, container, 16)
    assert (found["CUDA_VISIBLE_DEVICES"], found["OMP_NUM_THREADS"]) == ("3", "4")
