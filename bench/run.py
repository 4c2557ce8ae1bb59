"""`trainmaster run -- true` from the shell and back: on a running server, on a cold machine, against kubectl.

Counted is the wall time of the whole command, from exec to its end: interpreter, imports, TLS, the submit, the Pod, its
log, the verdict. Beside it the processor time of the command itself, which a busy machine changes little. Rounds take
turns: run without and with code, `kubectl version --client` (a program that does nothing), and the same job with
kubectl (create, wait, logs). Cold: the server is stopped before, so the command starts it; the home exists, and once
more with a home that does not.

Promises: at most 250 ms on a running server and 700 ms cold, also in a new home, and at most 1.5 times what three calls
of kubectl need for the same job.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench._report import Report
from tests.support.server import clean_environ, command
from tools.toolbox import Toolbox

WARM_MS, COLD_MS = 250.0, 700.0
RATIO = 1.5

Figure = tuple[float, float]
"""Milliseconds on the wall, and of processor time."""


class Field:
    """A home, a project with some code, and a kubectl."""

    def __init__(self, folder: Path, kubectl: Path) -> None:
        self.folder = folder
        self.kubectl = kubectl
        self.home = folder / "home"
        self.project = folder / "project"
        self.project.mkdir()
        for number in range(20):
            (self.project / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 50)
        self._jobs = 0

    @property
    def environ(self) -> dict[str, str]:
        # An installed package has its bytecode; compiling it at every start is nobody's case.
        plain = clean_environ({"TRAINMASTER_HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")})
        return {name: text for name, text in plain.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def call(self, *arguments: str, stdin: str = "") -> None:
        done = subprocess.run(
            arguments, env=self.environ, cwd=self.project, input=stdin, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")

    def trainmaster(self, *arguments: str) -> None:
        self.call(*command(*arguments))

    def train_with_kubectl(self) -> None:
        self._jobs += 1
        name = f"by-kubectl-{self._jobs}"
        trainer = {"numNodes": 1, "command": ["true"]}
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "spec": spec,
        }
        kubectl = str(self.kubectl)
        self.call(kubectl, "create", "-f", "-", stdin=json.dumps(job))
        self.call(kubectl, "wait", "--for=condition=Complete", f"trainjob/{name}", "--timeout=60s")
        self.call(kubectl, "logs", "-l", f"jobset.sigs.k8s.io/jobset-name={name}")


def measure(work: Callable[[], None]) -> Figure:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    work()
    wall = (time.perf_counter() - began) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def measure_warm(field: Field, rounds: int) -> dict[str, list[Figure]]:
    kinds: dict[str, Callable[[], None]] = {
        "python -c pass": lambda: field.call(sys.executable, "-I", "-c", "pass"),
        "kubectl version --client": lambda: field.call(str(field.kubectl), "version", "--client"),
        "run --no-code -- true": lambda: field.trainmaster("run", "--no-code", "--", "true"),
        "run -- true (20 files of code)": lambda: field.trainmaster("run", "--", "true"),
        "kubectl create, wait, logs": field.train_with_kubectl,
    }
    for work in kinds.values():
        work()
    found: dict[str, list[Figure]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, work in kinds.items():
            found[name].append(measure(work))
    return found


def measure_cold(field: Field, rounds: int, *, fresh: bool) -> list[Figure]:
    figures = []
    for _ in range(rounds):
        field.trainmaster("down")
        if fresh:
            shutil.rmtree(field.home)
        figures.append(measure(lambda: field.trainmaster("run", "--no-code", "--", "true")))
    return figures


def show(name: str, figures: list[Figure]) -> float:
    walls, processors = zip(*figures, strict=True)
    middle: float = statistics.median(walls)
    print(
        f"{name:<34} wall {middle:6.0f} ms (best {min(walls):.0f}, worst {max(walls):.0f}),"
        f" processor {statistics.median(processors):5.0f} ms",
        flush=True,
    )
    return middle


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    toolbox = Toolbox()
    kubectl = toolbox.find_program("kubectl") or toolbox.find_kubectl()
    if kubectl is None:
        print(toolbox.why_missing("kubectl"), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        field = Field(Path(folder), kubectl)
        field.trainmaster("up", "--detach")
        try:
            middles = {name: show(name, figures) for name, figures in measure_warm(field, options.rounds).items()}
            cold = show("cold: run --no-code -- true", measure_cold(field, max(3, options.rounds // 2), fresh=False))
            new = show("cold, in a new home", measure_cold(field, max(3, options.rounds // 2), fresh=True))
        finally:
            field.trainmaster("down")
    return judge(middles, cold, new)


def judge(middles: dict[str, float], cold: float, new: float) -> int:
    warm, kubectl = middles["run --no-code -- true"], middles["kubectl create, wait, logs"]
    anchor = f"kubectl {kubectl:.0f} ms for the same job"
    report = Report()
    report.check("`run -- true` compared with kubectl", warm / kubectl, at_most=RATIO, unit="x", anchor=anchor)
    report.check("`run -- true` on a running server", warm, at_most=WARM_MS, unit=" ms", anchor=anchor)
    report.check("`run -- true` with the server's start", cold, at_most=COLD_MS, unit=" ms", anchor=anchor)
    report.check("`run -- true` with the server's start in a new home", new, at_most=COLD_MS, unit=" ms", anchor=anchor)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
