"""`make demo`: a starter project trains on two nodes with one command, in a temporary home, and its loss falls.

Every step is an ordinary command, printed before it runs, so that a reader can repeat it: `trainmaster init`,
`trainmaster run` with its live view, and the same job through kubectl where the machine has one. The model is trained
with PyTorch, which is installed first when it is missing; `DEMO=numpy` is the light way, which needs no package at all.
Nothing is left behind but an installed torch; the exit code says whether the job completed and its loss fell.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.demo_torch import NoEnvironment, find_environment, make_environment  # noqa: E402
from tools.toolbox import Toolbox  # noqa: E402  (run as a script, the root is not on the path)

LOSS = re.compile(r"\bloss[ =:]+([0-9.]+)")
JOB = "demo"
TORCH, LIGHT = "torch", "numpy"


class DemoError(Exception):
    """An error message for the user."""


class Tour:
    """One home and its server; `show` prints a command and runs it in the project."""

    def __init__(self, folder: Path, kubectl: Path | None) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.kubectl = kubectl
        path = [str(Path(sys.executable).parent), *([str(kubectl.parent)] if kubectl else []), os.environ["PATH"]]
        self.environ = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "TRAINMASTER_HOME": str(self.home),
            "KUBECONFIG": str(self.home / "kubeconfig"),
        }

    def show(self, line: str) -> None:
        print(f"\n$ {line}", flush=True)
        code = subprocess.run(shlex.split(line), env=self.environ, cwd=self._get_folder()).returncode
        if code:
            raise DemoError(f"that failed with exit code {code}")

    def read(self, line: str, stdin: str = "") -> str:
        """Like `show`, but prints nothing."""
        command = shlex.split(line)
        done = subprocess.run(
            command, env=self.environ, cwd=self._get_folder(), input=stdin, capture_output=True, text=True
        )
        if done.returncode:
            raise DemoError(f"`{line}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _get_folder(self) -> Path:
        return self.project if self.project.is_dir() else self.project.parent


def main() -> int:
    wanted = os.environ.get("DEMO", TORCH)
    if wanted not in (TORCH, LIGHT):
        print(f"DEMO={wanted} is unknown: use DEMO={TORCH} or DEMO={LIGHT}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="trainmaster-demo-") as folder:
        tour = Tour(Path(folder), Toolbox().find_kubectl())
        try:
            if wanted == TORCH:
                losses = play(tour, "--torch", find_environment() or make_environment())
            else:
                losses = play(tour, "--plain", Path(sys.prefix))
        except (DemoError, NoEnvironment) as error:
            print(f"\nthe demo failed: {error}", file=sys.stderr)
            return 1
        finally:
            subprocess.run(["trainmaster", "down", "--stop-jobs"], env=tour.environ, capture_output=True, check=False)
    print(f"\nTwo nodes trained together: the loss fell from {losses[0]} to {losses[-1]}.")
    print("Next: `.venv/bin/trainmaster init my-project`, or docs/first-job.md.")
    return 0


def play(tour: Tour, program: str, environment: Path) -> list[float]:
    """Returns the losses that rank 0 printed."""
    tour.show(f"trainmaster init {program} {shlex.quote(str(tour.project))}")
    tour.show("trainmaster up --detach")
    if environment != Path(sys.prefix):
        print(f"\n(jobs run in the Python environment {environment}, by an image rule: docs/images.md)", flush=True)
        put_rule(tour, environment)
    tour.show(f"trainmaster run --name {JOB} --nodes 2 train.py")
    if tour.kubectl:
        tour.show("kubectl get trainjobs,jobsets,jobs,pods")
    else:
        tour.show("trainmaster list")
    tour.show(f"trainmaster describe {JOB}")
    lines = tour.read(f"trainmaster logs {JOB} --rank 0").splitlines()
    losses = [float(match.group(1)) for line in lines if (match := LOSS.search(line))]
    if len(losses) < 2 or losses[-1] >= losses[0]:
        raise DemoError(f"the loss did not fall: {losses}")
    return losses


def put_rule(tour: Tour, environment: Path) -> None:
    """Maps every image to this environment, as an administrator would."""
    rules = {"environments": {"demo": {"path": str(environment)}}, "rules": [{"image": "*", "environment": "demo"}]}
    table = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "image-rules", "namespace": "kubeflow-system"},
        "data": {"rules.yaml": json.dumps(rules)},
    }
    tour.read("trainmaster submit -f -", json.dumps(table))


if __name__ == "__main__":
    sys.exit(main())
