"""The rules that come with Trainmaster: for the images of the shipped runtimes, behind an administrator's own."""

from __future__ import annotations

from trainmaster.node.images.rules import Rule

_INITIALIZER = "the image's program is replaced by our own initializer"
_REMOTE_START = (
    "sshd is replaced by a local stand-in for remote start, which mpirun reaches through the gang's directory"
)
_SSHD = ("python", "-m", "trainmaster.remote_start.server")
_AGENT = "python -m trainmaster.remote_start.agent"
_MPI_VARIABLES = {
    "OMPI_MCA_plm_rsh_agent": _AGENT,
    # The Pod's user is root in its own eyes where the server is.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def _initializer(kind: str) -> Rule:
    command = ("python", "-m", f"trainmaster.initializer.{kind}")
    return Rule(f"*/trainer/{kind}-initializer*", command=command, note=_INITIALIZER)


def _mpi(image: str) -> Rule:
    stand_ins = {"/usr/sbin/sshd": _SSHD, "sshd": _SSHD}
    return Rule(image, env=_MPI_VARIABLES, stand_ins=stand_ins, gang=True, note=_REMOTE_START)


SHIPPED: tuple[Rule, ...] = (
    _initializer("dataset"),
    _initializer("model"),
    _mpi("*/trainer/deepspeed-runtime*"),
    _mpi("*/trainer/mlx-runtime*"),
    _mpi("*mpi*"),
    Rule("*pytorch/pytorch*"),
    Rule("*/trainer/torchtune-trainer*"),
    Rule("*/trainer/xgboost-runtime*"),
    Rule("*/nvidia/jax*"),
    Rule("docker.io/library/python*"),
)
