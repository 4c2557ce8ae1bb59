"""The owner's jobs find the owner's models and share a cache; no other job does. With real processes at two levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.bench import Bench, is_over, run
from tests.support.chain import make_chain
from trainmaster.api.labels import OWNER, SUBMITTER
from trainmaster.api.resources import NAMESPACES, TRAIN_JOBS
from trainmaster.api.tenancy import TENANT
from trainmaster.client.contract import PatchType
from trainmaster.shim.protocol import FULL, PLAIN

pytestmark = [pytest.mark.node, pytest.mark.parametrize("level", (PLAIN, FULL))]

READ = """
hub=$HF_HOME/hub/models--o--m
cat $hub/snapshots/$(cat $hub/refs/main)/config.json
ls $HF_HOME
cat $TORCH_HOME/mine $TORCH_HOME/hub/checkpoints/resnet.pth
"""
WRITE = "mkdir -p $TORCH_HOME; echo by another job > $TORCH_HOME/mine"


def put_caches(owner: Path) -> dict[str, str]:
    """A Hugging Face cache as `huggingface_hub` writes it, with a token beside it, and a checkpoint of torch hub."""
    model = owner / ".cache/huggingface/hub/models--o--m"
    for folder in ("blobs", "refs", "snapshots/c1"):
        (model / folder).mkdir(parents=True)
    (model / "blobs/b1").write_text("a model\n")
    (model / "refs/main").write_text("c1")
    (model / "snapshots/c1/config.json").symlink_to("../../blobs/b1")
    (owner / ".cache/huggingface/token").write_text("hf_secret")
    (owner / ".cache/torch/hub/checkpoints").mkdir(parents=True)
    (owner / ".cache/torch/hub/checkpoints/resnet.pth").write_text("weights\n")
    return {"PATH": "/usr/bin:/bin", "HOME": str(owner)}


async def submit(bench: Bench, name: str, script: str) -> str:
    """A Pod of a TrainJob that the owner submitted."""
    chain = await make_chain(bench.client, name)
    patch = {"metadata": {"annotations": {SUBMITTER: OWNER}}}
    await bench.client.patch(TRAIN_JOBS, name, PatchType.MERGE, patch, "default")
    await bench.create(script, name=name, metadata=chain.metadata())
    return name


def test_the_owners_jobs_find_the_owners_models_and_what_their_other_jobs_cached(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        owner = tmp_path / "owner"
        settings = {
            "environ": put_caches(owner),
            "caches": tmp_path / "caches",
            "model_caches": ("huggingface/hub", "torch/hub/checkpoints"),
        }
        async with bench.running_agent(level=level, **settings) as agent:
            await bench.wait_for(is_over, await submit(bench, "a", WRITE))
            pod = await bench.wait_for(is_over, await submit(bench, "b", READ))
            assert await bench.read_log(agent, pod) == "a model\nhub\nby another job\nweights\n"
            for name in ("a", "b"):
                await bench.remove(name)
        assert not (owner / ".cache/torch/mine").exists()

    run(tmp_path, test)


@pytest.mark.parametrize("whose", ["somebody else's", "in a tenant's namespace"])
def test_no_other_job_does(tmp_path: Path, level: str, whose: str) -> None:
    async def test(bench: Bench) -> None:
        settings = {"environ": put_caches(tmp_path / "owner"), "caches": tmp_path / "caches"}
        script = "echo ${XDG_CACHE_HOME-none} ${HF_HOME-none}; ls -d /trainmaster/cache"
        if whose == "in a tenant's namespace":
            patch = {"metadata": {"labels": {TENANT: "ann"}}}
            await bench.client.patch(NAMESPACES, "default", PatchType.MERGE, patch)
        async with bench.running_agent(level=level, model_caches=("huggingface/hub",), **settings) as agent:
            if whose == "in a tenant's namespace":
                await submit(bench, "p", script)
            else:
                chain = await make_chain(bench.client, "p")
                forged = {**chain.metadata(), "annotations": {SUBMITTER: OWNER}}
                await bench.create(script, name="p", metadata=forged)
            pod = await bench.wait_for(is_over)
            shown = await bench.read_log(agent, pod)
            assert shown.startswith("none none\n")
            assert "/trainmaster/cache\n" not in shown
            await bench.remove()
        assert not (tmp_path / "caches").exists()

    run(tmp_path, test)
