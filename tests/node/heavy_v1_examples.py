"""The examples of `examples/v1` that are not part of `make test`: elastic torchrun, TensorFlow, PaddlePaddle, MXNet.

make heavy
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.node.test_v1_examples import check_example, kubectl, read_v1_logs, remove_example
from tests.support.environments import find_or_skip
from tests.support.training import EXAMPLES, Lab, training
from tools.frameworks import MXNET, PADDLE, TENSORFLOW

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("heavy-v1") / "home") as lab:
        lab.limit = 400.0
        yield lab


def use_environment(lab: Lab, name: str) -> None:
    lab.change_rules({"image": f"*{name}/*", "environment": name}, **{name: find_or_skip(name)})


def list_steps(lab: Lab) -> list[tuple[int, float, int]]:
    """(step, loss, number of workers), in the order of the steps; the first rank may be in any Pod."""
    found = re.findall(r"step +(\d+) loss ([0-9.]+) on (\d) workers", read_v1_logs(lab, "elastic-v1"))
    return sorted((int(step), float(loss), int(workers)) for step, loss, workers in found)


def wait_for_steps(lab: Lab, workers: int, after: int) -> int:
    """Until so many workers train and are a few steps further; the number of the last step."""

    def find() -> int:
        steps = list_steps(lab)
        return steps[-1][0] if steps and steps[-1][2] == workers and steps[-1][0] > after + 3 else 0

    return int(lab.wait_until(find, f"{workers} workers train after step {after}"))


def test_torchrun_goes_on_when_a_worker_dies_joins_and_leaves(lab: Lab) -> None:
    """The program continues from its checkpoint each time, in the Pods that are there."""
    kubectl(lab, "apply", "-k", str(EXAMPLES / "v1/elastic"))
    wait_for_steps(lab, 2, 0)
    kubectl(lab, "exec", "elastic-v1-worker-1", "--", "sh", "-c", "kill -9 2")
    restarts = "jsonpath={.status.containerStatuses[0].restartCount}"
    lab.wait_until(lambda: kubectl(lab, "get", "pod", "elastic-v1-worker-1", "-o", restarts) == "1", "it starts again")
    step = wait_for_steps(lab, 2, list_steps(lab)[-1][0])
    kubectl(lab, "scale", "pytorchjob/elastic-v1", "--replicas=3")
    step = wait_for_steps(lab, 3, step)
    kubectl(lab, "scale", "pytorchjob/elastic-v1", "--replicas=2", "--current-replicas=3")
    wait_for_steps(lab, 2, step)
    lab.wait_until(lambda: len(lab.list_v1_pods("elastic-v1")) == 2, "the third worker is gone")
    lab.wait_until(lambda: list_steps(lab)[-1][0] == 500, "it trains to the end")
    kubectl(lab, "wait", "--for=condition=Succeeded", "pytorchjob/elastic-v1", "--timeout=60s")
    steps = list_steps(lab)
    assert steps[-1][1] < steps[0][1] / 2, steps
    assert "of 2 continues after step 0" not in kubectl(lab, "logs", "elastic-v1-worker-1"), "the second container"
    remove_example(lab, "elastic", "elastic-v1")


def test_workers_of_a_tfjob_mirror_their_variables(lab: Lab) -> None:
    use_environment(lab, TENSORFLOW)
    lines = {f"tensorflow-v1-worker-{rank}": f"worker {rank} of 2 has joined" for rank in (0, 1)}
    check_example(lab, "tensorflow", "tfjob/tensorflow-v1", lines)


def test_the_chief_of_a_tfjob_trains_with_workers_and_a_parameter_server(lab: Lab) -> None:
    """The servers are deleted when the chief has finished, as the job's cleanPodPolicy says."""
    use_environment(lab, TENSORFLOW)
    lines = {"parameter-server-v1-chief-0": "the weights are on /job:ps/replica:0/task:0"}
    check_example(lab, "parameter-server", "tfjob/parameter-server-v1", lines)


def test_workers_of_a_paddlejob_are_started_by_its_launcher(lab: Lab) -> None:
    use_environment(lab, PADDLE)
    lines = {"paddle-v1-worker-0": "of 2 has joined", "paddle-v1-worker-1": "of 2 has joined"}
    check_example(lab, "paddle", "paddlejob/paddle-v1", lines)


def test_workers_of_an_mxjob_push_gradients_to_the_server(lab: Lab) -> None:
    use_environment(lab, MXNET)
    lines = {"mxnet-v1-worker-0": "of 2 has joined", "mxnet-v1-worker-1": "of 2 has joined"}
    check_example(lab, "mxnet", "mxjob/mxnet-v1", lines)
