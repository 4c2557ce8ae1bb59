"""MPI (Open MPI): a launcher that reaches the nodes by ssh, with a hostfile and a key pair per job.

Jobs and containers have fixed names: `launcher` and `node`, each with a container `node`. With `runLauncherAsNode` the
launcher is one of the requested nodes. If one node is requested, upstream still starts one worker, and so do we,
because our objects are compared with upstream's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import CONFIG_MAPS, SECRETS
from trainmaster.api.training.counts import count_mpi_pods
from trainmaster.api.training.devices import count_gpus
from trainmaster.api.training.steps import LAUNCHER, NODE, find_container
from trainmaster.controllers.frameworks.contract import (
    Companion,
    ContainerPart,
    Framework,
    FrameworkContext,
    Injection,
    Training,
)
from trainmaster.controllers.frameworks.keys import encode_data

OPEN_MPI = "OpenMPI"
_SSH_VOLUME = "mpi-ssh-auth"
_HOSTFILE_VOLUME = "mpi-hostfile"
_HOSTFILE_DIRECTORY = "/etc/mpi"
_SSH_DIRECTORY = "/root/.ssh"


def _inject(training: Training, context: FrameworkContext) -> Injection:
    asked = training.trainer.get("numNodes")
    counts = count_mpi_pods(training.jobs, training.policy, training.counts, asked, training.num_nodes)
    slots = decide_slots(training)
    ssh = ({"name": _SSH_VOLUME, "mountPath": training.policy.get("sshAuthMountPath") or _SSH_DIRECTORY},)
    hostfile = ({"name": _HOSTFILE_VOLUME, "mountPath": _HOSTFILE_DIRECTORY},)
    volumes = (_build_ssh_volume(training.name),)
    parts = []
    for job in training.jobs:
        if job["name"] == NODE:
            parts.append(ContainerPart(NODE, mounts=ssh, volumes=volumes))
        elif job["name"] == LAUNCHER:
            more = (*volumes, _build_hostfile_volume(training.name))
            parts.append(ContainerPart(LAUNCHER, env=_build_env(slots), mounts=(*ssh, *hostfile), volumes=more))
    if training.trainer_job:
        parts.append(ContainerPart(training.trainer_job, env=training.env))
    if training.policy.get("runLauncherAsNode") and any(job["name"] == NODE for job in training.jobs):
        parts.append(ContainerPart(NODE, env=training.env))
    text = build_hostfile(training, counts, slots)
    return Injection(counts, tuple(parts), _build_companions(training, context, text))


def decide_slots(training: Training) -> int:
    asked = training.num_proc_per_node
    slots = asked if isinstance(asked, int) else 1
    gpus = count_gpus(training.resources)
    return gpus if slots == 1 and gpus > 1 else slots


def build_hostfile(training: Training, counts: Mapping[str, int], slots: int) -> str:
    """One line per Pod that runs ranks, in the order of the runtime's jobs."""
    with_launcher = training.policy.get("runLauncherAsNode")
    lines = []
    for job in training.jobs:
        if job["name"] == NODE or (with_launcher and job["name"] == LAUNCHER):
            for replica in range(int(job.get("replicas") or 1)):
                for index in range(counts.get(job["name"], 1)):
                    host = f"{training.name}-{job['name']}-{replica}-{index}.{training.subdomain}"
                    lines.append(f"{host} slots={slots}\n")
    return "".join(lines)


def _build_env(slots: int) -> tuple[Fields, ...]:
    return (
        {"name": "OMPI_MCA_orte_default_hostfile", "value": f"{_HOSTFILE_DIRECTORY}/hostfile"},
        {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
        {"name": "OMPI_MCA_orte_set_default_slots", "value": str(slots)},
        {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"},
    )


def _build_ssh_volume(name: str) -> Fields:
    items = [
        {"key": "ssh-privatekey", "mode": 0o640, "path": "id_rsa"},
        {"key": "ssh-publickey", "mode": 0o644, "path": "id_rsa.pub"},
        {"key": "ssh-publickey", "mode": 0o644, "path": "authorized_keys"},
    ]
    secret = {"secretName": f"{name}-mpi-ssh-auth", "defaultMode": 0o400, "items": items}
    return {"name": _SSH_VOLUME, "secret": secret}


def _build_hostfile_volume(name: str) -> Fields:
    items = [{"key": "hostfile", "mode": 0o444, "path": "hostfile"}]
    return {"name": _HOSTFILE_VOLUME, "configMap": {"name": f"{name}-mpi-hostfile", "items": items}}


def _build_companions(training: Training, context: FrameworkContext, hostfile: str) -> tuple[Companion, ...]:
    def make_secret() -> Object:
        pair = context.make_ssh_keys()
        data = {"ssh-privatekey": encode_data(pair.private), "ssh-publickey": encode_data(pair.public)}
        return {"type": "kubernetes.io/ssh-auth", "immutable": True, "data": data}

    return (
        Companion(SECRETS, "Secret", f"{training.name}-mpi-ssh-auth", make_secret, once=True),
        Companion(CONFIG_MAPS, "ConfigMap", f"{training.name}-mpi-hostfile", lambda: {"data": {"hostfile": hostfile}}),
    )


def _list_problems(training: Training, context: FrameworkContext) -> Sequence[str]:
    implementation = training.policy.get("mpiImplementation", OPEN_MPI)
    problems = []
    if implementation != OPEN_MPI:
        problems.append(f"mlPolicy.mpi.mpiImplementation {implementation!r} of the runtime (only {OPEN_MPI})")
    for job in training.jobs:
        if job["name"] in (NODE, LAUNCHER) and find_container(job, NODE) is None:
            problems.append(f"the runtime's job {job['name']} without a container named {NODE}")
    return problems


FRAMEWORK = Framework("mpi", _inject, _list_problems)
