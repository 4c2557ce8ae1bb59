"""From typing `trainmaster run` to the first all-reduce of two ranks, against `torchrun` typed by hand.

    .venv/bin/python -m bench.first_step [--rounds 5] [--prefix ENVIRONMENT]

The program imports torch, transformers and trainmaster, as a training script does. Counted is the wall time from exec
of the command until the line of the slower rank is there, so interpreter, submit, scheduling, Pods, rendezvous and logs
are included. The first runs of `trainmaster run` teach the server what to import (docs/warm-start.md) and are printed
apart; the others take turns with torchrun.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench._report import Report
from tests.support.server import clean_environ, command
from tests.support.training import ROOT, training
from tools.frameworks import TOOL, find_environment

PROGRAM = """
import os
import torch
import torch.distributed as dist
import transformers
import trainmaster

dist.init_process_group("gloo")
size = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=100)
model = transformers.BertModel(transformers.BertConfig(**size))
model(torch.ones(1, 4, dtype=torch.long)).last_hidden_state.sum().backward()
ones = torch.ones(1)
dist.all_reduce(ones)
os.write(1, f"reduced {int(ones)}\\n".encode())  # in one piece: both ranks share the terminal
dist.barrier()
dist.destroy_process_group()
"""
RANKS = 2


def measure(arguments: Sequence[str], folder: Path, environ: dict[str, str]) -> float:
    """Seconds until both ranks have printed their line; the command is then awaited."""
    began, seen, reduced = time.monotonic(), 0, 0.0
    text = ""
    with subprocess.Popen(
        arguments, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text += line
            if f"reduced {RANKS}" in line:
                seen += 1
                reduced = time.monotonic() - began
    assert process.returncode == 0 and seen == RANKS, text
    return reduced


def run(prefix: Path, rounds: int) -> dict[str, float]:
    """Median seconds of `run` and of `torchrun`."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-first-step-") as name, training(Path(name, "home")) as lab:
        project = Path(name, "project")
        project.mkdir()
        temporary = Path(name, "tmp")
        temporary.mkdir()
        (project / "train.py").write_text(PROGRAM)
        ours = clean_environ({"TRAINMASTER_HOME": str(lab.home)})
        theirs = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
        by_hand = [f"{prefix}/bin/torchrun", f"--nproc-per-node={RANKS}", "train.py"]

        def start() -> float:
            return measure(command("run", "--nodes", str(RANKS), "--cpu", "0.5", "train.py"), project, ours)

        print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"  trainmaster run, the first time {start():6.2f} s")
        sockets = lab.home / "pods" / ".zygote"
        lab.wait_until(lambda: list(sockets.glob("warm-*.sock")), "the imports are done")
        print(f"  trainmaster run, the second     {start():6.2f} s")
        figures: dict[str, list[float]] = {"run": [], "torchrun": []}
        for _ in range(rounds):
            figures["run"].append(start())
            figures["torchrun"].append(measure(by_hand, project, theirs))
        medians = {key: statistics.median(values) for key, values in figures.items()}
        for key, label in (("run", "trainmaster run, from then on"), ("torchrun", "torchrun by hand")):
            values = figures[key]
            print(f"  {label:31} {medians[key]:6.2f} s (best {min(values):.2f}, worst {max(values):.2f})")
        return medians


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefix", type=Path, help="an environment with torch and transformers")
    arguments = parser.parse_args()
    prefix = arguments.prefix or find_environment(TOOL)
    if prefix is None:
        print("there is no environment with torch: run `make setup`, or name one with --prefix", file=sys.stderr)
        return 2
    medians = run(prefix, arguments.rounds)
    report = Report()
    report.check(
        "first all-reduce of two ranks with torch and transformers, sooner than with torchrun",
        medians["torchrun"] / medians["run"],
        at_least=5,
        unit="x",
        anchor=f"`trainmaster run` {medians['run']:.2f} s, `torchrun` by hand {medians['torchrun']:.2f} s",
    )
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
