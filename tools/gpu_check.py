"""Tries everything about GPUs on this machine, as a user would, and prints a table for docs/gpus.md.

    python tools/gpu_check.py [--rounds N] [--only WORD ...] [--rehearse]

Run it with the Python of an environment that has torch and Trainmaster. Each row is one check, with what was seen; what
this machine lacks is marked as not tried. A server in a temporary home runs the jobs. `--rehearse` runs the same
on a machine without a GPU, with a declared one: then nothing computes on a GPU, and the table says so. Exit status 1 if
a check failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.gpu_programs import HOLD, MANIFESTS, PROGRAMS, SHOW
from trainmaster.node.devices.nvml import NvmlError
from trainmaster.node.devices.reader import GpuReader

NOT_TRIED = "not tried"
_READER = "node/devices/nvml.py"
_SAYS = re.compile(r"SAYS (\{[^{}]*\})")
_PATIENCE = 150
_LEVELS = ("full", "user", "plain")
_LAUNCHERS = {
    "torchrun": ("torch-distributed", ["show.py"]),
    "a command": ("torch-distributed", ["--", "python", "show.py"]),
    "the runtime plain": ("plain", ["--", "python", "show.py"]),
    "JAX (runtime jax-distributed)": ("jax-distributed", ["show_jax.py"]),
}


class CheckError(Exception):
    """What was expected and not seen."""


class Missing(Exception):
    """What this machine lacks for a check."""


@dataclass
class Row:
    what: str
    seen: str
    verdict: str


@dataclass
class Bench:
    """A home with a server, and a folder with the programs."""

    folder: Path
    rounds: int
    is_rehearsal: bool
    rows: list[Row] = field(default_factory=list)
    level: str = ""

    @property
    def environ(self) -> dict[str, str]:
        found = {**os.environ, "TRAINMASTER_HOME": str(self.folder / "home"), "NO_COLOR": "1"}
        found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        if self.is_rehearsal:
            found["TRAINMASTER_NODE_GPUS"] = "1"
        return found

    def call(self, *arguments: str, stdin: str = "", environ: dict[str, str] | None = None) -> tuple[int, str]:
        """Runs `trainmaster`, and returns its exit code and output."""
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster", *arguments],
            env={**self.environ, **(environ or {})},
            cwd=self.folder / "programs",
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    def run(self, *arguments: str) -> dict[str, Any]:
        """`trainmaster run` of a program with one GPU; what it said last."""
        code, output = self.call("run", "--gpu", "1", *arguments)
        if code:
            raise CheckError(f"`run {' '.join(arguments)}` ended with {code}: {output[-1500:]}")
        return self.read(output)

    def read(self, output: str) -> dict[str, Any]:
        said = _SAYS.findall(output)
        if not said:
            raise CheckError(f"the program said nothing: {output[-1500:]}")
        facts: dict[str, Any] = json.loads(said[-1])
        if not facts["computed"] and not self.is_rehearsal:
            raise CheckError(f"it did not compute on a GPU: {facts}")
        return facts

    def start(self, level: str = "auto", warm: str = "auto") -> float:
        """Starts a server; returns the seconds until it was ready."""
        began = time.perf_counter()
        settings = {"TRAINMASTER_NODE_WARM": warm, "TRAINMASTER_NODE_ISOLATION": level}
        code, output = self.call("up", "--detach", environ=settings)
        if code:
            raise Missing(output.strip().splitlines()[-1] if output.strip() else f"`up` ended with {code}")
        return time.perf_counter() - began

    def stop(self) -> None:
        self.call("down", "--stop-jobs")

    @contextlib.contextmanager
    def serving(self, level: str = "auto", warm: str = "auto") -> Iterator[float]:
        seconds = self.start(level, warm)
        try:
            yield seconds
        finally:
            self.stop()


Check = Callable[[Bench], str]


def check_nvml(bench: Bench) -> str:
    began = time.perf_counter()
    reader = GpuReader(seconds=60)
    try:
        gpus = reader.list_gpus()
        first = time.perf_counter() - began
        times = [_take(reader.list_gpus) for _ in range(20)]
    except NvmlError as error:
        raise Missing(str(error)) from None
    finally:
        reader.close()
    if not gpus:
        raise Missing("libnvidia-ml.so.1 is not installed")
    names = ", ".join(f"GPU {gpu.index}: {gpu.product}, {gpu.memory_mib} MiB" for gpu in gpus)
    return f"{names}; first answer after {_ms(first)}, then in {_ms(statistics.median(times))}"


def _take(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def check_start(bench: Bench) -> str:
    times = []
    for _ in range(max(3, bench.rounds)):
        with bench.serving() as seconds:
            times.append(seconds)
            _, nodes = bench.call("nodes", "-o", "json")
    count = re.search(r'"nvidia.com/gpu": "(\d+)"|"gpus": (\d+)', nodes)
    if count is None or "0" in count.groups():
        raise CheckError(f"the Node has no GPU when `up` returns: {nodes[-500:]}")
    return f"`up --detach` ready after {_ms(statistics.median(times))}, and the Node has its GPUs"


def check_level(level: str) -> Check:
    def check(bench: Bench) -> str:
        with bench.serving(level):
            facts = bench.run("show.py")
            code, output = bench.call("run", "show.py")
            said = _SAYS.findall(output)
            if code or not said:
                raise CheckError(f"a job without a GPU ended with {code}: {output[-800:]}")
            other = json.loads(said[-1])
        if other["sees"] or (level != "plain" and other["nodes"]):
            raise CheckError(f"a job without a GPU sees {other}")
        nodes = ", ".join(facts["nodes"]) or "none"
        return f"torch sees {facts['sees']}; nodes: {nodes}; without --gpu: sees 0, nodes: {len(other['nodes'])}"

    return check


def check_launcher(runtime: str, command: Sequence[str]) -> Check:
    def check(bench: Bench) -> str:
        if "jax" in runtime and importlib.util.find_spec("jax") is None:
            raise Missing("jax is not installed")
        facts = bench.run("--runtime", runtime, *command)
        return f"CUDA_VISIBLE_DEVICES={facts['visible']}, sees {facts['sees']}"

    return check


def check_v1(kind: str, manifest: str) -> Check:
    def check(bench: Bench) -> str:
        if kind == "MPIJob" and shutil.which("mpirun", path=bench.environ["PATH"]) is None:
            raise Missing("mpirun is not installed")
        text = manifest.replace("PYTHON", sys.executable).replace("PROGRAM", json.dumps(SHOW))
        code, output = bench.call("submit", "-f", "-", "--wait", stdin=text)
        _, logs = bench.call("logs", f"{kind.lower()}/gpu-check-v1")
        if code:
            raise CheckError(f"{output[-800:]} {logs[-800:]}")
        facts = bench.read(logs)
        return f"CUDA_VISIBLE_DEVICES={facts['visible']}, sees {facts['sees']}"

    return check


def check_nproc(bench: Bench) -> str:
    if bench.is_rehearsal:
        raise Missing("a GPU")
    facts = bench.run("--nproc", "gpu", "show.py")
    return f"{facts['world']} process for {facts['sees']} GPU"


def check_top(bench: Bench) -> str:
    bench.call("run", "--gpu", "1", "--detach", "--name", "gpu-top", "hold.py", "12")
    for _ in range(100):
        _, logs = bench.call("logs", "gpu-top")
        if "SAYS" in logs:
            break
        time.sleep(0.2)
    time.sleep(2)
    began = time.perf_counter()
    _, output = bench.call("top")
    seconds = time.perf_counter() - began
    line = next((line for line in output.splitlines() if "gpu-top" in line), output)
    bench.call("wait", "gpu-top")
    if "1 at " not in line and not bench.is_rehearsal:
        raise CheckError(output)
    return f"`{' '.join(line.split())}` after {_ms(seconds)}"


def check_handover(bench: Bench) -> str:
    """From the last line of a program that computed on the GPU to the first of the next job."""
    gaps = []
    for number in range(bench.rounds):
        first, second = f"gpu-first-{number}", f"gpu-second-{number}"
        bench.call("run", "--gpu", "1", "--detach", "--name", first, "hold.py", "4")
        bench.call("run", "--gpu", "1", "--detach", "--name", second, "--", "date", "+BEGAN %s.%N")
        bench.call("wait", first, second)
        ended = bench.read(bench.call("logs", first)[1])["ended"]
        began = re.search(r"BEGAN ([0-9.]+)", bench.call("logs", second)[1])
        if began is None:
            raise CheckError(bench.call("describe", second)[1])
        gaps.append(float(began[1]) - ended)
    middle, most = _ms(statistics.median(gaps)), _ms(max(gaps))
    return f"the next job runs {middle} after the last line of the one before (longest {most})"


@contextlib.contextmanager
def _foreign(bench: Bench) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen([sys.executable, "-c", HOLD, "600"], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        bench.read(program.stdout.readline())
        yield program
    finally:
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


def check_foreign(bench: Bench) -> str:
    if bench.is_rehearsal:
        raise Missing("a GPU")
    with _foreign(bench) as program:
        time.sleep(12)
        bench.call("run", "--gpu", "1", "--detach", "--name", "gpu-waits", "--", "date", "+BEGAN %s.%N")
        time.sleep(2)
        _, said = bench.call("explain", "gpu-waits")
        if f"process {program.pid}" not in said or "belongs to no job" not in said:
            raise CheckError(f"the process {program.pid} is not named: {said}")
        program.kill()
        program.wait()
        ended = time.time()
        bench.call("wait", "gpu-waits")
    began = re.search(r"BEGAN ([0-9.]+)", bench.call("logs", "gpu-waits")[1])
    if began is None:
        raise CheckError("the job did not run after the foreign process had ended")
    text = re.search(r"GPU 0 is used by [^;\n]*", said)
    return f"“{text[0] if text else ''}”; the job starts {_ms(float(began[1]) - ended)} after the process has ended"


def check_elastic(bench: Bench) -> str:
    facts = bench.run("--", "torchrun", "--max-restarts=1", "elastic.py")
    return f"attempt {facts['attempt']} completes on the same GPU"


def check_training(library: str, *command: str, needs_gpu: bool = False) -> Check:
    """A program that trains with the library, and says what it saw."""

    def check(bench: Bench) -> str:
        if importlib.util.find_spec(library) is None:
            raise Missing(f"{library} is not installed")
        if bench.is_rehearsal and needs_gpu:
            raise Missing("a GPU")
        facts = bench.run(*command)
        return ", ".join(f"{key} {value}" for key, value in facts.items() if key != "computed")

    return check


def check_hang(bench: Bench) -> str:
    """The program that reads GPUs is stopped, as if the driver did not return."""
    server = re.search(r'"pid": *(\d+)', bench.call("status", "-o", "json")[1])
    command = ["pgrep", "-P", server[1] if server else "0", "-f", _READER]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    if not found:
        raise Missing("NVML")
    try:
        for pid in found:
            os.kill(int(pid), signal.SIGSTOP)
        time.sleep(14)
        bench.call("run", "--gpu", "1", "--detach", "--name", "gpu-hang", "--", "true")
        _, said = bench.call("explain", "gpu-hang")
        seconds = _take(lambda: bench.call("list"))
    finally:
        for pid in found:
            os.kill(int(pid), signal.SIGCONT)
    code, output = bench.call("wait", "gpu-hang", "--timeout", "60s")
    if code or "does not answer" not in said:
        raise CheckError(f"{said} {output}")
    return f"the job waits and says why; `list` takes {_ms(seconds)}; it runs once NVML answers"


def check_steps(name: str) -> Check:
    """Seconds from the command to the end of the first step: medians of alternating rounds."""

    def check(bench: Bench) -> str:
        if "transformers" in name and importlib.util.find_spec("transformers") is None:
            raise Missing("transformers is not installed")
        starts: list[str] = []
        ways: dict[str, Callable[[], str]] = {
            "warm": lambda: bench.call("run", "--gpu", "1", "--name", _name_warm(name, len(starts)), name)[1],
            "cold": lambda: bench.call("run", "--gpu", "1", "--env", "PYTHONHASHSEED=1", name)[1],
            "torchrun": lambda: _run_bare(bench, ["-m", "torch.distributed.run", "--nproc-per-node=1", name]),
            "python": lambda: _run_bare(bench, [name]),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(bench.rounds + 1):
            for way, call in ways.items():
                began = time.time()
                seconds = bench.read(call())["at"] - began
                if number:
                    times[way].append(seconds)
                if way == "warm":
                    starts.append(_find_start(bench, _name_warm(name, len(starts))))
        middle = {way: statistics.median(found) for way, found in times.items()}
        parts = (f"{way} {middle[way]:.2f} s ({min(found):.2f}–{max(found):.2f})" for way, found in times.items())
        cold = [text for text in starts[1:] if "started warm" not in text]
        note = f"; {len(cold)} of {bench.rounds} warm starts were cold: {cold[-1]}" if cold else ""
        return f"{'; '.join(parts)}; torchrun / warm = {middle['torchrun'] / middle['warm']:.1f}{note}"

    return check


def _name_warm(program: str, number: int) -> str:
    return f"{Path(program).stem.replace('_', '-')}-warm-{number}"


def _find_start(bench: Bench, job: str) -> str:
    """How its Pod started, as the event says."""
    found = re.search(r"Container \S+ (started (?:warm|cold)[^\n]*)", bench.call("describe", job)[1])
    return found[1] if found else "without a word"


def _run_bare(bench: Bench, command: Sequence[str]) -> str:
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555", "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=bench.folder / "programs",
        env={**bench.environ, **({} if "-m" in command else variables)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    return done.stdout


def list_checks() -> Iterator[tuple[str, Check, bool]]:
    """(what, check, whether it needs a running server)"""
    yield "GPUs through NVML", check_nvml, False
    yield "start of the server", check_start, False
    for level in _LEVELS:
        yield f"`run --gpu 1`, isolation `{level}`", check_level(level), False
    for name, (runtime, command) in _LAUNCHERS.items():
        yield f"launched by {name}", check_launcher(runtime, command), True
    for kind, manifest in MANIFESTS.items():
        yield f"launched by a v1 {kind}", check_v1(kind, manifest), True
    yield "`run --nproc gpu`", check_nproc, True
    yield "`top`", check_top, True
    yield "one job after another", check_handover, True
    yield "a foreign process on the GPU", check_foreign, True
    yield "torchrun restarts its worker", check_elastic, True
    yield "Hugging Face Trainer, bf16", check_training("transformers", "trainer.py"), True
    yield "T5 with FSDP, bf16, random weights", check_training("transformers", "t5_fsdp.py", needs_gpu=True), True
    recipe = check_training("torchtune", "--", "python", "torchtune_recipe.py")
    yield "torchtune recipe, bf16, random weights", recipe, True
    yield "NVML does not answer", check_hang, True
    yield "first step with NCCL", check_steps("step.py"), True
    yield "the same, importing torch, transformers and trainmaster", check_steps("step_transformers.py"), True


NOT_ON_HARDWARE = (
    ("two GPUs, two leases", "tests/unit/controllers/scheduler/test_gpu_leases.py"),
    ("a GPU in MIG mode", "tests/unit/node/devices/test_nvml.py, test_device_nodes.py"),
    ("Xid, and a GPU that falls off the bus", "tests/unit/node/devices/test_nvml.py"),
    ("another version of NVML", "tests/unit/node/devices/test_nvml.py, tests/node/test_gpu_reader.py"),
)


def try_check(bench: Bench, what: str, check: Check, *, needs_server: bool) -> None:
    began = time.perf_counter()
    try:
        with bench.serving() if needs_server and not bench.level else contextlib.nullcontext():
            row = Row(what, check(bench), "declared GPU" if bench.is_rehearsal else "ok")
    except Missing as error:
        row = Row(what, str(error), NOT_TRIED)
    except (CheckError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
        row = Row(what, f"{type(error).__name__}: {error}", "FAILED")
    bench.rows.append(row)
    print(f"{row.verdict:12} {time.perf_counter() - began:6.1f} s  {what}: {row.seen}", flush=True)


def print_table(bench: Bench) -> None:
    torch = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__, 'CUDA', torch.version.cuda)"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    ).stdout.strip()
    driver = Path("/proc/driver/nvidia/version")
    words = driver.read_text().split() if driver.exists() else []
    version = next((word for word in words if re.fullmatch(r"\d+\.\d+(\.\d+)?", word)), "none")
    print(f"\nLinux {platform.release()}, Python {platform.python_version()}, torch {torch}, driver {version}\n")
    print("| what | seen | |\n|---|---|---|")
    for row in bench.rows:
        text = " ".join(row.seen.split()).replace("|", "\\|")
        print(f"| {row.what} | {text if row.verdict != 'FAILED' else text[:200]} | {row.verdict} |")
    for what, where in NOT_ON_HARDWARE:
        print(f"| {what} | answers of NVML in unit tests only: `{where}` | {NOT_TRIED} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of measurements (default 5)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only checks with one of these words")
    parser.add_argument("--rehearse", action="store_true", help="on a machine without a GPU")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        bench = Bench(Path(name), options.rounds, options.rehearse)
        (bench.folder / "programs").mkdir()
        for file, text in PROGRAMS.items():
            (bench.folder / "programs" / file).write_text(text)
        chosen = [
            entry for entry in list_checks() if not options.only or any(word in entry[0] for word in options.only)
        ]
        for what, check, _ in (entry for entry in chosen if not entry[2]):
            try_check(bench, what, check, needs_server=False)
        with bench.serving():
            bench.level = "auto"
            for what, check, _ in (entry for entry in chosen if entry[2]):
                try_check(bench, what, check, needs_server=True)
        print_table(bench)
        return int(any(row.verdict == "FAILED" for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
