"""Names in the Pods of an MPIJob that its controller writes and the node knows."""

from __future__ import annotations

CONFIG = "mpi-job-config"
"""The volume with the hostfile and the script that starts ranks in the workers; all Pods have it."""
CONFIG_PATH = "/etc/mpi"
EXEC = "kubexec.sh"
KUBECTL = "mpi-job-kubectl"
"""The volume with kubectl, in the launcher only."""
KUBECTL_PATH = "/opt/kube"


def build_launcher_name(job: str) -> str:
    return f"{job}-launcher"
