"""An ordinary Hugging Face Trainer script: nothing in it knows where it runs.

A tiny GPT-2 made on the spot learns to count. `transformers` notices that it runs in a TrainJob and reports progress,
time left and metrics by itself; torchrun starts it once per rank.
"""

from __future__ import annotations

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WORDS, LENGTH = 32, 16
STEPS = int(os.environ.get("STEPS", "40"))


class Counting(torch.utils.data.Dataset):
    """Sequences of numbers, each one more than the one before."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        numbers = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": numbers, "labels": numbers}


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, bos_token_id=0,
                        eos_token_id=0)  # fmt: skip
    arguments = TrainingArguments(
        output_dir="out",
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_steps=5,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting())
    trainer.train()
    if trainer.is_world_process_zero():
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(f"step {entry['step']:2d} loss {float(entry['loss']):.4f}", flush=True)


if __name__ == "__main__":
    main()
