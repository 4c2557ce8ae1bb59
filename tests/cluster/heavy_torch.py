"""Two nodes train with torch on the real node (`make heavy`).

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

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_TRAIN = """
import torch, torch.distributed as dist
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
total = sum(parameter.detach().sum() for parameter in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.4f}, weights {total:.6f}", flush=True)
assert loss.item() < 0.01
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
    site.submit("torch", "", nodes=2, image=TRAINMASTER, runtime="torch", trainer={"command": command})
    done = site.await_job("torch", "ends", lambda job: job.get("status", {}).get("conditions"), seconds=240)
    logs = site.run("logs", "torch").text
    assert [one["type"] for one in done["status"]["conditions"]] == ["Complete"], f"{done['status']}\n{logs}"
    said = {line.partition("] ")[2] for line in logs.splitlines() if "loss" in line}
    assert len(said) == 2 and len({line.rpartition("weights")[2] for line in said}) == 1, logs
