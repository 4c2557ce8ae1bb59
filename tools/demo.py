"""`make demo`: the five-minute tour. Starts a server in a temporary home and drives it with a plain kubectl.

Every command is printed before it runs, so that a reader can repeat it. The home is deleted at the end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.toolbox import Toolbox, Unavailable  # noqa: E402  (run as a script, the root is not on the path)

MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: greeting
  namespace: demo
data:
  text: hello
"""


class Tour:
    def __init__(self, home: Path, kubectl: Path) -> None:
        self.home = home
        self.environ = {
            **os.environ,
            "PATH": f"{kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TRAINMASTER_HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
        }

    def show(self, line: str, stdin: str = "") -> None:
        print(f"\n$ {line}", flush=True)
        done = subprocess.run(shlex.split(line), env=self.environ, input=stdin, text=True)
        if done.returncode:
            raise SystemExit(f"that failed with exit code {done.returncode}")


def main() -> int:
    try:
        kubectl = Toolbox().find_kubectl() or Toolbox().ensure_program("kubectl")
    except Unavailable as error:
        print(f"no kubectl here, and it cannot be built: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="trainmaster-demo-") as folder:
        tour = Tour(Path(folder) / "home", kubectl)
        try:
            tour.show("trainmaster up --detach")
            tour.show("kubectl create namespace demo")
            print(f"\n{MANIFEST}")
            tour.show("kubectl apply -f -", MANIFEST)
            tour.show("kubectl get configmaps,serviceaccounts -n demo")
            tour.show("kubectl explain trainjob.spec.trainer")
            tour.show("kubectl auth can-i create trainjobs -n demo")
            tour.show("kubectl delete namespace demo")
            tour.show("trainmaster status")
        finally:
            tour.show("trainmaster down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
