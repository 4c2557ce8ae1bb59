"""Two nodes train with torch on the real node (`make heavy`), and everything that a user does with such a job works.

torch is not packed into an image: its cached environment, and the Python that it was made with, are mounted into the
Pods from the machine, under the paths that they have there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.site import Site
from tests.kube.images import TRAINMASTER
from tools.frameworks import TOOL, find_environment
from tools.toolbox import Toolbox
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
sys.path.append("/usr/lib/python3/dist-packages")
import trainmaster
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
data = torch.randn(256, 4)
target = data.sum(1, keepdim=True)
for step in range(50):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    trainmaster.report(step=step + 1, total=50, loss=loss.item())
total = sum(parameter.detach().sum() for parameter in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.4f}, weights {total:.6f}", flush=True)
assert loss.item() < 0.01
while not os.path.exists("/tmp/go"):
    time.sleep(0.1)
dist.destroy_process_group()
"""


def mount(folders: Sequence[Path]) -> dict[str, Any]:
    """Fields of a Pod's spec."""
    volumes = [{"name": f"m{number}", "hostPath": {"path": str(path)}} for number, path in enumerate(folders)]
    mounts = [{"name": f"m{number}", "mountPath": str(path), "readOnly": True} for number, path in enumerate(folders)]
    # The folders may lie below the home of the user who made them, where the user of the image may not go.
    return {"volumes": volumes, "container": {"volumeMounts": mounts}, "securityContext": {"runAsUser": 0}}


def test_a_torch_job_of_two_nodes_completes(site: Site) -> None:
    environment = find_environment(TOOL)
    if environment is None:
        pytest.skip(Toolbox().why_missing(TOOL))
    # Debian's own Python is in the image, too.
    folders = [environment, *([] if sys.base_prefix == "/usr" else [Path(sys.base_prefix)])]
    site.add_runtime("torch", policy={"torch": {"numProcPerNode": 1}}, **mount(folders))
    command = [str(environment / "bin" / "python"), "-m", "torch.distributed.run", "--no-python"]
    command += [str(environment / "bin" / "python"), "-c", _TRAIN]
    trainer = {"command": command}
    site.submit("torch", "", nodes=2, image=TRAINMASTER, runtime="torch", trainer=trainer, ttlSecondsAfterFinished=5)
    site.await_job("torch", "is trained", lambda job: read_percentage(job) == 100 or is_over(job), seconds=240)
    assert "100%" in site.run("list").out, site.run("list").text
    for rank in ("0", "1"):
        answer = site.run("exec", "torch", "--rank", rank, "--", "touch", "/tmp/go")
        assert answer.code == 0, answer.text + site.run("logs", "torch").text
    done = site.await_job("torch", "ends", is_over)
    logs = site.run("logs", "torch").text
    assert [one["type"] for one in done["status"]["conditions"]] == ["Complete"], f"{done['status']}\n{logs}"
    said = {line.partition("] ")[2] for line in logs.splitlines() if "loss" in line}
    assert len(said) == 2 and len({line.rpartition("weights")[2] for line in said}) == 1, logs
    site.await_that("its TTL deletes it", lambda: site.find(TRAIN_JOBS, "torch") is None)


def is_over(job: Object) -> bool:
    return bool(job.get("status", {}).get("conditions"))


def read_percentage(job: Object) -> int:
    """How far it is, as its ranks report."""
    found: int = job.get("status", {}).get("trainerStatus", {}).get("progressPercentage", 0)
    return found
