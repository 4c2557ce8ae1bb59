"""The training programs of `gpu_check.py`. Each prints one line `SAYS {...}` for the table."""

from __future__ import annotations

_SAY = """
import json, os, sys, time
def say(**facts): print("SAYS " + json.dumps(facts), flush=True)
"""
_DEVICE = """
import torch
on_gpu = torch.cuda.is_available()
device = "cuda" if on_gpu else "cpu"
"""

SHOW = (
    _SAY
    + _DEVICE
    + """
import glob
a = torch.randn(1024, 1024, device=device)
total = float((a @ a).norm())
say(visible=os.environ.get("CUDA_VISIBLE_DEVICES"), sees=torch.cuda.device_count(), computed=on_gpu and total > 0,
    nodes=sorted(os.path.basename(path) for path in glob.glob("/dev/nvidia*")),
    world=int(os.environ.get("WORLD_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))), pid=os.getpid())
"""
)
SHOW_JAX = (
    _SAY
    + """
import jax, jax.numpy as jnp
a = jnp.ones((1024, 1024))
say(visible=os.environ.get("CUDA_VISIBLE_DEVICES"), sees=len(jax.devices()), computed=float((a @ a).sum()) > 0
    and jax.devices()[0].platform == "gpu", nodes=[], world=1)
"""
)
"""The first step of a training with torch.distributed, as a user would write it."""
STEP = (
    _SAY
    + _DEVICE
    + """
import torch.distributed as dist
dist.init_process_group("nccl" if on_gpu else "gloo")
if on_gpu: torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).to(device))
optimizer = torch.optim.AdamW(model.parameters())
loss = model(torch.randn(64, 1024, device=device)).square().mean()
loss.backward()
optimizer.step()
if on_gpu: torch.cuda.synchronize()
value = torch.ones(1, device=device)
dist.all_reduce(value)
say(at=time.time(), computed=on_gpu and float(value) == dist.get_world_size(), backend=dist.get_backend())
dist.destroy_process_group()
"""
)
STEP_TRANSFORMERS = STEP.replace("import torch\n", "import torch, transformers, trainmaster\n", 1)
HOLD = (
    _SAY
    + _DEVICE
    + """
a = torch.randn(8192 if on_gpu else 64, 8192 if on_gpu else 64, device=device)
say(computed=on_gpu, pid=os.getpid())
until = time.time() + float(sys.argv[1])
while time.time() < until:
    b = a @ a
    if on_gpu: torch.cuda.synchronize()
say(ended=time.time(), computed=on_gpu)
"""
)
"""Computes for some seconds."""
ELASTIC = (
    _SAY
    + _DEVICE
    + """
import torch.distributed as dist
dist.init_process_group("nccl" if on_gpu else "gloo")
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
value = torch.ones(1, device=device)
dist.all_reduce(value)
if attempt == 0:
    os._exit(3)
say(attempt=attempt, computed=on_gpu and float(value) == 1.0)
dist.destroy_process_group()
"""
)
TRAINER = (
    _SAY
    + _DEVICE
    + """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=128, vocab_size=512))
data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 512, (64, 64))]
options = TrainingArguments(output_dir="out", max_steps=10, per_device_train_batch_size=8, bf16=on_gpu,
                            report_to=[], save_strategy="no", disable_tqdm=True)
done = Trainer(model=model, args=options, train_dataset=data).train()
say(steps=done.global_step, loss=round(done.training_loss, 2), computed=next(model.parameters()).is_cuda)
"""
)
"""A Hugging Face Trainer in bf16, with a small random model."""
T5_FSDP = (
    _SAY
    + _DEVICE
    + """
import functools
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block
dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = T5ForConditionalGeneration(T5Config(num_layers=2, d_model=256, d_ff=512, num_heads=4, vocab_size=512,
                                            decoder_start_token_id=0))
wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block})
half = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
model = FullyShardedDataParallel(model, auto_wrap_policy=wrap, mixed_precision=half, device_id=0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
words = torch.randint(1, 512, (8, 32), device="cuda")
losses = []
for _ in range(20):
    loss = model(input_ids=words, labels=words).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(float(loss))
say(first=round(losses[0], 2), last=round(losses[-1], 2), computed=losses[-1] < losses[0])
dist.destroy_process_group()
"""
)
"""T5 with FSDP on one GPU, with a small random model."""

TORCHTUNE = (
    _SAY
    + _DEVICE
    + """
import base64, re, subprocess, tempfile
from torchtune.models.llama3_2 import llama3_2
folder = tempfile.mkdtemp()
start, data, settings, words, out = (
    os.path.join(folder, name) for name in ("start", "data.json", "settings.yaml", "tokenizer.model", "out"))
os.mkdir(start)
with open(words, "w") as file:
    file.writelines(f"{base64.b64encode(bytes([byte])).decode()} {byte}\\n" for byte in range(256))
sizes = dict(vocab_size=128256, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=64, max_seq_len=512,
             intermediate_dim=128)
torch.save(llama3_2(**sizes).state_dict(), os.path.join(start, "model.pt"))
with open(data, "w") as file:
    json.dump([{"instruction": f"Add one to {n}.", "input": "", "output": str(n + 1)} for n in range(64)], file)
def part(name, **arguments): return {"_component_": "torchtune." + name, **arguments}
with open(settings, "w") as file:
    json.dump({
        "output_dir": out, "device": device, "dtype": "bf16" if on_gpu else "fp32", "seed": 0, "shuffle": True,
        "model": part("models.llama3_2.llama3_2", **sizes),
        "tokenizer": part("models.llama3.llama3_tokenizer", path=words, max_seq_len=512),
        "checkpointer": part("training.FullModelTorchTuneCheckpointer", checkpoint_dir=start,
            checkpoint_files=["model.pt"], recipe_checkpoint=None, output_dir=out, model_type="LLAMA3_2"),
        "dataset": part("datasets.alpaca_dataset", source="json", data_files=data, split="train"),
        "optimizer": {"_component_": "torch.optim.AdamW", "lr": 0.01},
        "loss": part("modules.loss.CEWithChunkedOutputLoss"),
        "metric_logger": part("training.metric_logging.StdoutLogger"),
        "batch_size": 4, "epochs": 1, "max_steps_per_epoch": 10, "gradient_accumulation_steps": 1,
        "resume_from_checkpoint": False, "optimizer_in_bwd": False, "clip_grad_norm": None, "compile": False,
        "enable_activation_checkpointing": False, "enable_activation_offloading": False, "log_every_n_steps": 1,
        "log_peak_memory_stats": False, "log_level": "INFO"}, file)
done = subprocess.run(["tune", "run", "full_finetune_single_device", "--config", settings], text=True,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
losses = [float(loss) for loss in re.findall(r"\\| loss:([0-9.]+)", done.stdout)]
if done.returncode or not losses:
    sys.exit(done.stdout[-3000:])
say(steps=len(losses), first=round(losses[0], 2), last=round(losses[-1], 2),
    computed=on_gpu and losses[-1] < losses[0])
"""
)
"""A recipe of torchtune with a small random model, a tokenizer of bytes and a data set of its own."""

PROGRAMS = {
    "torchtune_recipe.py": TORCHTUNE,
    "show.py": SHOW,
    "show_jax.py": SHOW_JAX,
    "step.py": STEP,
    "step_transformers.py": STEP_TRANSFORMERS,
    "hold.py": HOLD,
    "elastic.py": ELASTIC,
    "trainer.py": TRAINER,
    "t5_fsdp.py": T5_FSDP,
}
PYTORCH_JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: gpu-check-v1
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime
              command: ["python", "-c", PROGRAM]
              resources:
                limits:
                  nvidia.com/gpu: 1
"""
MPI_JOB = """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata:
  name: gpu-check-v1
spec:
  runPolicy:
    cleanPodPolicy: Running
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: mpi
              image: mpioperator/mpi-pi:openmpi
              command: ["mpirun", "--allow-run-as-root", "-np", "1", "PYTHON", "-c", PROGRAM]
    Worker:
      replicas: 1
      template:
        spec:
          containers:
            - name: mpi
              image: mpioperator/mpi-pi:openmpi
              resources:
                limits:
                  nvidia.com/gpu: 1
"""
"""The launcher has no GPU: its program runs on the worker, which would keep its GPU without the cleanPodPolicy."""
MANIFESTS = {"PyTorchJob": PYTORCH_JOB, "MPIJob": MPI_JOB}
