"""Checkpoints as the frameworks themselves write them: recognised, whole, and damaged wherever they are cut.

`tests/unit/history/checkpoints` has more cases, with files that are made by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environments import find_or_skip
from tools.frameworks import TOOL
from trainmaster.history.checkpoints.choosing import choose
from trainmaster.history.checkpoints.reading import choose_resumable, read_checkpoints
from trainmaster.history.checkpoints.verifying import verify

# Torch needs half a minute to start where other tests run beside it.
pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

UID = "uid-1"

SAVE = """
import os, sys
from pathlib import Path
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

rank, root = int(sys.argv[1]), Path(sys.argv[2])
os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
dist.init_process_group("gloo", init_method=f"file://{root}/meeting", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
weights = distribute_tensor(torch.arange(4000.0).reshape(100, 40), mesh, [Shard(0)])
dcp.save({"weights": weights, "bias": torch.ones(7), "step": 20}, checkpoint_id=root / "sharded" / "step-20")
dist.destroy_process_group()
if rank:
    sys.exit()
state = {"model": torch.nn.Linear(8, 8).state_dict(), "ramp": torch.arange(200.0), "step": 10}
torch.save(state, root / "step-10.pt")
save_file({"a": torch.ones(50), "b": torch.zeros(30, 2)}, root / "step-30.safetensors")
for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
    del os.environ[name]
model = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                     num_attention_heads=2, num_key_value_heads=2))
data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}] * 8
arguments = TrainingArguments(root / "trainer", max_steps=4, save_steps=2, per_device_train_batch_size=1, use_cpu=True,
                              report_to=[], disable_tqdm=True)
Trainer(model, arguments, train_dataset=data).train()
"""

LOAD = """
import sys
import torch
print(torch.load(sys.argv[1])["step"])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the programs saved."""
    root = tmp_path_factory.mktemp("saved")
    python = find_or_skip(TOOL) / "bin" / "python"
    ranks = [
        subprocess.Popen(
            [python, "-c", SAVE, str(rank), root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=build_environ()
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            output, _ = rank.communicate(timeout=300)
            assert rank.returncode == 0, output.decode()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    yield root


def build_environ() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def get_outputs(archive: Path) -> Path:
    return archive / "results" / UID / "outputs"


def test_every_format_is_found_by_rule_without_a_change_of_the_program(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, get_outputs(tmp_path))
    found = {item.name.removeprefix("outputs/"): item for item in read_checkpoints(tmp_path, UID).items}
    assert {name: (item.format, item.step, item.problem) for name, item in found.items()} == {
        "step-10.pt": ("torch", 10, ""),
        "sharded/step-20": ("torch-distributed", 20, ""),
        "step-30.safetensors": ("safetensors", 30, ""),
        "trainer/checkpoint-2": ("hugging-face", 2, ""),
        "trainer/checkpoint-4": ("hugging-face", 4, ""),
    }
    for item in found.values():
        assert verify(item).problems == (), item.name


@pytest.mark.parametrize("name", ["step-10.pt", "sharded/step-20", "step-30.safetensors", "trainer/checkpoint-4"])
def test_wherever_a_file_is_cut_the_checkpoint_before_it_is_resumed_from(made: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "results" / UID / "checkpoints"
    folder.mkdir(parents=True)
    good, target = folder / "good.pt", folder / Path(name).name
    shutil.copy(made / "step-10.pt", good)
    marker = folder / "good.pt.complete"
    marker.touch()
    os.utime(marker, (1, 1))
    if (made / name).is_dir():
        shutil.copytree(made / name, target)
        (target / ".complete").touch()
    else:
        shutil.copy(made / name, target)
        (folder / f"{target.name}.complete").touch()
    assert choose_resumable(folder).name == target.name
    files = [path for path in [target, *target.rglob("*")] if path.is_file() and path.name != ".complete"]
    read = (".pt", ".pth", ".bin", ".safetensors", ".distcp", ".metadata", "trainer_state.json")
    cuts = 0
    for file in (path for path in files if path.name.endswith(read)):
        content = file.read_bytes()
        # JSON without the newline at its end is whole.
        least = len(content.rstrip()) if file.name.endswith(".json") else len(content)
        for size in {0, 1, 2, 3, 4, 30, least - 1, *range(5, least, max(1, least // 60))}:
            os.truncate(file, size)
            assert choose_resumable(folder).name == "good.pt", f"{file.name} cut to {size} of {len(content)}"
            file.write_bytes(content)
            cuts += 1
    assert cuts > 50
    python = find_or_skip(TOOL) / "bin" / "python"
    loaded = subprocess.run([python, "-c", LOAD, good], capture_output=True, env=build_environ(), timeout=200)
    assert json.loads(loaded.stdout) == 10, loaded.stderr


def test_a_changed_byte_of_a_tensor_is_found_by_its_checksum(made: Path, tmp_path: Path) -> None:
    outputs = get_outputs(tmp_path)
    shutil.copytree(made, outputs)
    for path in (outputs / "step-10.pt", outputs / "sharded" / "step-20" / "__0_0.distcp"):
        content = bytearray(path.read_bytes())
        content[content.index(struct.pack("<3f", 100, 101, 102))] ^= 0x10
        path.write_bytes(content)
    items = read_checkpoints(tmp_path, UID).items
    for name in ("outputs/step-10.pt", "outputs/sharded/step-20"):
        (problem,) = verify(choose(items, name)).problems
        assert "has other bytes in" in problem and "the checksum differs" in problem
