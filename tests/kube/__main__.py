"""A real control plane for people: `python -m tests.kube up [--trainer] [--nodes 4] -- COMMAND`.

COMMAND (a shell by default) runs with KUBECONFIG set; when it ends, everything is stopped and deleted.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.kube.cluster import KubeCluster, Parts
from tests.kube.namespaces import NoNamespaces
from tests.kube.real import make_real_cluster
from tools.toolbox import Unavailable


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kube", description=__doc__)
    up = parser.add_subparsers(required=True).add_parser("up", help="start, run COMMAND, stop")
    up.add_argument("--no-controllers", action="store_true", help="etcd and kube-apiserver only")
    up.add_argument("--scheduler", action="store_true")
    up.add_argument("--jobset", action="store_true")
    up.add_argument("--trainer", action="store_true", help="JobSet and Trainer")
    up.add_argument("--podgroups", action="store_true", help="the kinds for gang scheduling")
    up.add_argument("--real", action="store_true", help="a real node, JobSet and our kinds; as root")
    up.add_argument("--nodes", type=int, default=0, help="fake nodes")
    up.add_argument("--running-ms", type=int, default=0, help="a Pod is Running so long after it was scheduled")
    up.add_argument("--complete-ms", type=int, default=0, help="a Pod has succeeded so long after that")
    up.add_argument("command", nargs="*", metavar="-- COMMAND")
    options = parser.parse_args(argv)
    parts = Parts(
        controller_manager=not options.no_controllers,
        scheduler=options.scheduler,
        jobset=options.jobset,
        trainer=options.trainer,
        podgroups=options.podgroups,
        nodes=options.nodes,
        running_ms=options.running_ms,
        complete_ms=options.complete_ms,
    )
    # SIGTERM ends the `with` below the way Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        with make_real_cluster() if options.real else KubeCluster(parts) as cluster:
            print(f"ready in {time.monotonic() - began:.1f} s: {cluster.server}", file=sys.stderr)
            print(f"export KUBECONFIG={cluster.kubeconfig}", file=sys.stderr)
            command = options.command or [os.environ.get("SHELL", "sh")]
            return subprocess.run(command, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}).returncode
    except (Unavailable, NoNamespaces) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
