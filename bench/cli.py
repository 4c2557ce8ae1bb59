"""Start-up of the command line: every command as a ratio to `kubectl version --client` and to an empty Python.

Counted is CPU time, user and system, of the whole process until it ends, and wall time beside it: a busy machine makes
wall times long and leaves CPU times alone. `--help` is parsing and the command's own imports; the commands that read
run against a server with one TrainJob. The runs of all commands alternate, so that load meets all alike.

Promises: every command within 200 ms of CPU; `kubectl get trainjob` against us at most 1.2 times `kubectl version
--client` (wall, the median of pairs that run one right after the other).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench._report import Report
from tests.support.server import clean_environ, command, start_server
from tools.toolbox import Toolbox
from trainmaster.cli.commands import COMMANDS

START_MS = 200.0
KUBECTL_RATIO = 1.2
READING = (("list",), ("get", "a"), ("describe", "a"), ("logs", "a"), ("nodes",), ("runtimes",))
SLOW = (("explain",), ("check", "-f", "job.json"), ("doctor",))
"""Those that load the scheduler, a registry or the isolation probe."""
JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "plain"}, "trainer": {"numNodes": 1, "command": ["echo", "a"]}},
}


def run(words: Sequence[str], environ: Mapping[str, str], stdin: str = "") -> tuple[float, float]:
    """(milliseconds of CPU, of wall time)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(words, env=dict(environ), input=stdin, text=True, capture_output=True, check=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, wall * 1000


def measure(
    commands: Mapping[str, Sequence[str]], environ: Mapping[str, str], runs: int
) -> dict[str, tuple[float, float]]:
    """The medians, by name; the first run of each is not counted."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, words in commands.items():
            figures = run(words, environ)
            if number:
                found[name].append(figures)
    return {
        name: (statistics.median(cpu for cpu, _ in pairs), statistics.median(wall for _, wall in pairs))
        for name, pairs in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    toolbox = Toolbox()
    kubectl = toolbox.find_program("kubectl") or toolbox.find_kubectl()
    if kubectl is None:
        print(toolbox.why_missing("kubectl"), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder) / "home") as server:
        extra = {
            "PYTHONDONTWRITEBYTECODE": "",
            "TRAINMASTER_HOME": str(server.home),
            "KUBECONFIG": str(server.kubeconfig),
            "HOME": folder,
        }
        environ = clean_environ(extra)
        os.chdir(folder)
        Path("job.json").write_text(json.dumps(JOB))
        run(command("submit", "-f", "-", "--wait"), environ, json.dumps(JOB))
        commands: dict[str, Sequence[str]] = {
            "kubectl version --client": (str(kubectl), "version", "--client"),
            "kubectl get trainjob": (str(kubectl), "get", "trainjob"),
            "python -c pass": (sys.executable, "-c", "pass"),
        }
        commands |= {f"trainmaster {name} --help": command(name, "--help") for name in COMMANDS}
        commands |= {f"trainmaster {' '.join(words)}": command(*words) for words in (*READING, *SLOW)}
        found = measure(commands, environ, options.runs)
        pairs = [
            (run(commands["kubectl get trainjob"], environ)[1], run(commands["kubectl version --client"], environ)[1])
            for _ in range(8 * options.runs)
        ]
    print_figures(found, options.runs)
    return report_promises(found, pairs)


def print_figures(found: Mapping[str, tuple[float, float]], runs: int) -> None:
    kubectl, python = found["kubectl version --client"], found["python -c pass"]
    load = os.getloadavg()[0]
    print(f"median of {runs} runs, load {load:.1f}, {os.cpu_count()} cores; ratios of CPU time")
    print(f"{'command':<32} {'CPU ms':>7} {'wall ms':>8} {'x kubectl':>10} {'x python':>9}")
    for name, (cpu, wall) in found.items():
        print(f"{name:<32} {cpu:>7.0f} {wall:>8.0f} {cpu / kubectl[0]:>10.2f} {cpu / python[0]:>9.2f}")


def report_promises(found: Mapping[str, tuple[float, float]], pairs: Sequence[tuple[float, float]]) -> int:
    """A row for each slow command, one for the slowest of all others, and one for kubectl's `pairs` (wall times of
    `get trainjob` and `version --client`)."""
    report = Report()
    bare = f"kubectl version --client {found['kubectl version --client'][0]:.0f} ms"
    ours = {name: cpu for name, (cpu, _) in found.items() if name.startswith("trainmaster")}
    for words in SLOW:
        name = f"trainmaster {' '.join(words)}"
        report.check(f"CPU of `trainmaster {words[0]}`", ours.pop(name), at_most=START_MS, unit=" ms", anchor=bare)
    slowest = max(ours, key=lambda name: ours[name])
    anchor = f"`{slowest}` is the slowest; {bare}"
    report.check("CPU of any other command", ours[slowest], at_most=START_MS, unit=" ms", anchor=anchor)
    what = "`kubectl get trainjob` compared with `kubectl version --client`"
    ratio = statistics.median(ours / bare for ours, bare in pairs)
    walls = [statistics.median(times) for times in zip(*pairs, strict=True)]
    report.check(what, ratio, at_most=KUBECTL_RATIO, unit="x", anchor=f"{walls[0]:.0f} ms and {walls[1]:.0f} ms")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
