"""The rules shipped with Trainmaster, for the images of the shipped runtimes; an administrator's rules precede them."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.node.images.rules import ImageRule
from trainmaster.version import PACKAGE

MPI_VOLUME = "mpi-ssh-auth"
"""The volume that the TrainJob controller adds to every Pod of an MPI job (`controllers/frameworks/mpi`)."""
_INITIALIZER = "the image's program is replaced by our own initializer"
_REMOTE_START = (
    "sshd is replaced by a local stand-in for remote start, which mpirun reaches through the gang's directory"
)
# By path: a Pod's environment need not contain our package, and these import nothing of it.
_REMOTE = f"{PACKAGE}/remote_start/program.py"
_LOADER = f"{PACKAGE}/initializer/program.py"
_KUBECTL = f"{PACKAGE}/remote_start/kubectl_exec.py"
_DELIVERY = "the image's kubectl is replaced by a local stand-in that can exec"
_MPI_HOME = "/home/mpiuser"
"""The home directory in upstream's MPI images; the Kubeflow SDK writes the training function there."""
_SSHD = ("python3", _REMOTE, "serve")
_OPEN_MPI = {
    # If the server runs as root, so does the Pod's user.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # All Pods are on one machine, but Open MPI would bind the first rank of each to the same processor.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
_MPI_VARIABLES = {"OMPI_MCA_plm_rsh_agent": f"python3 {_REMOTE} start", **_OPEN_MPI}


def _initializer(kind: str) -> ImageRule:
    command = ("python3", _LOADER, kind)
    # Set here, because a path inside a program cannot be rewritten at the plain level.
    env = {"TARGET": f"/workspace/{kind}"}
    return ImageRule(f"*/trainer/{kind}-initializer*", command=command, env=env, shown=(_LOADER,), note=_INITIALIZER)


def add_remote_start(rule: ImageRule) -> ImageRule:
    """For the Pods of MPI jobs, whatever their image."""
    return replace(
        rule,
        env={**_MPI_VARIABLES, **rule.env},
        stand_ins={"/usr/sbin/sshd": _SSHD, "sshd": _SSHD},
        gang=True,
        home=_MPI_HOME,
        shown=(*rule.shown, _REMOTE),
        note="; ".join(filter(None, (rule.note, _REMOTE_START))),
    )


def add_mpijob(rule: ImageRule) -> ImageRule:
    """For the Pods of MPIJobs, whatever their image."""
    return replace(rule, env={**_OPEN_MPI, **rule.env})


_SHELL = ("bash",)
"""What all images based on Ubuntu run by default. Without input it ends immediately, successfully."""

SHIPPED: tuple[ImageRule, ...] = (
    _initializer("dataset"),
    _initializer("model"),
    ImageRule("*/kubectl-delivery*", command=("python3", _KUBECTL), shown=(_KUBECTL,), note=_DELIVERY),
    ImageRule("*/trainer/deepspeed-runtime*", default_args=_SHELL),
    ImageRule("*/trainer/mlx-runtime*", default_args=_SHELL),
    ImageRule("*pytorch/pytorch*", default_args=_SHELL),
    ImageRule("*tensorflow/tensorflow*", default_args=_SHELL),
    ImageRule("*/trainer/torchtune-trainer*", default_args=_SHELL),
    ImageRule("*/trainer/xgboost-runtime*", default_args=_SHELL),
    ImageRule("*/nvidia/jax*", default_args=_SHELL),
    ImageRule("docker.io/library/python*", default_args=("python3",)),
)


def add_program(rule: ImageRule, image: str) -> ImageRule:
    """An administrator's rule for many images usually names no command. For images whose program we replace, the
    shipped rule completes it."""
    shipped = None if rule.command else next((own for own in SHIPPED if own.command and own.matches(image)), None)
    if shipped is None:
        return rule
    env = {**shipped.env, **rule.env}
    return replace(rule, command=shipped.command, env=env, shown=shipped.shown, note=shipped.note)
