"""torchtune: which recipe and configuration `tune run` gets, and what a TrainJob may not set.

Upstream's table (Trainer 2.3). A job is torchtune's when its command is exactly `tune run`; the model comes from the
name of the runtime, which has three parts (`torchtune-llama3.2-1b`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENTRYPOINT = ("tune", "run")
MANAGED_CONFIGS = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")
"""Paths that belong to the runtime's volumes: taken from its command, refused in a TrainJob's args."""
LARGEST = "llama3_3/70B"
QWEN = "qwen2_5/1.5B"
MODELS = ("llama3_2/1B", "llama3_2/3B", LARGEST, QWEN)
SINGLE_DEVICE_QLORA = ("llama3_2/1B", "llama3_2/3B")


@dataclass(frozen=True, slots=True)
class RecipeShape:
    """What the choice of a recipe depends on."""

    num_nodes: int
    num_proc_per_node: Any
    """int or `auto`."""
    gpus: int

    @property
    def is_single_device(self) -> bool:
        return self.num_nodes == 1 and (self.num_proc_per_node == 1 or self.gpus == 1)

    @property
    def needs_rendezvous(self) -> bool:
        if self.num_nodes > 1:
            return True
        if isinstance(self.num_proc_per_node, int):
            return self.num_proc_per_node > 1
        return self.num_proc_per_node == "auto" and self.gpus > 1


def is_torchtune(trainer: Mapping[str, Any]) -> bool:
    return tuple(trainer.get("command") or ()) == ENTRYPOINT


def find_model(runtime_name: str) -> str:
    """`torchtune-llama3.2-1b` -> `llama3_2/1B`; "" for a name of another form."""
    parts = runtime_name.split("-")
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == 3 else ""


def uses_lora(args: Iterable[str]) -> bool:
    return any("model.lora_attn_modules" in arg for arg in args)


def uses_qlora(args: Iterable[str]) -> bool:
    args = list(args)
    return any(_is_on(arg, "model.quantize_base") for arg in args) and not any(
        _is_on(arg, "model.use_dora") for arg in args
    )


def _is_on(arg: str, name: str) -> bool:
    key, equals, value = arg.partition("=")
    return bool(equals) and name in key and value.strip().lower() == "true"


def choose_recipe(shape: RecipeShape, args: Sequence[str]) -> tuple[str, str]:
    """(recipe, suffix of the configuration)."""
    qlora, lora = uses_qlora(args), uses_lora(args)
    if shape.is_single_device:
        if qlora:
            return "lora_finetune_single_device", "_qlora_single_device"
        if lora:
            return "lora_finetune_single_device", "_lora_single_device"
        return "full_finetune_single_device", "_full_single_device"
    if shape.num_nodes == 1 and qlora:
        return "lora_finetune_distributed", "_qlora"
    if shape.num_nodes == 1 and lora:
        return "lora_finetune_distributed", "_lora"
    return "full_finetune_distributed", "_full_multinode" if shape.num_nodes > 1 else "_full"


def list_managed_configs(command: Iterable[str]) -> list[str]:
    """The elements of the runtime's command that every job keeps, in their order."""
    return [part for part in command if "=" in part and part.partition("=")[0] in MANAGED_CONFIGS]


def find_managed_config(arg: str) -> str | None:
    """The setting that this argument may not change."""
    key, equals, _ = arg.partition("=")
    return key if equals and key.strip() in MANAGED_CONFIGS else None
