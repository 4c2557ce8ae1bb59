"""Flux: every node starts a broker of one overlay network, and the first one runs the job in it.

Operator mode only: embedded mode has no image to install the broker from (see the fidelity table). The settings that
upstream reads from the environment (`FLUX_VIEW_IMAGE`, `FLUX_NETWORK_DEVICE`, `FLUX_QUEUE_POLICY`) are supported. The
broker's certificate is random; the command is quoted, so arguments may contain spaces.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.api.resources import CONFIG_MAPS, SECRETS
from trainmaster.api.training.devices import count_gpus
from trainmaster.api.training.steps import NODE
from trainmaster.controllers.frameworks.contract import (
    Companion,
    ContainerPart,
    Framework,
    FrameworkContext,
    Injection,
    Training,
)
from trainmaster.controllers.frameworks.keys import KeyPair, encode_data

INSTALLER = "flux-installer"
_CONFIG_DIRECTORY = "/etc/flux-config"
_DEFAULTS = {
    "FLUX_VIEW_IMAGE": "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
    "FLUX_NETWORK_DEVICE": "eth0",
    "FLUX_QUEUE_POLICY": "fcfs",
}
_BROKER_PORT = 8050


def _inject(training: Training, context: FrameworkContext) -> Injection:
    settings = read_settings(training)
    config = f"{training.name}-flux-entrypoint"
    own = training.trainer.get("command") or training.runtime_command
    command = shlex.join([*own, *list_items(training.trainer, "args")])
    installer = {
        "name": INSTALLER,
        "image": settings["FLUX_VIEW_IMAGE"],
        "command": ["/bin/bash", f"{_CONFIG_DIRECTORY}/init.sh"],
        "resources": {},
        "volumeMounts": [
            {"name": "flux-install", "mountPath": "/mnt/flux"},
            {"name": config, "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
        ],
    }
    part = ContainerPart(
        NODE,
        env=training.env,
        mounts=_build_mounts(config),
        volumes=_build_volumes(training.name, config),
        init_containers=(installer,),
        command=("/bin/bash", f"{_CONFIG_DIRECTORY}/entrypoint.sh", command),
        drop_args=True,
    )
    return Injection(parts=(part,), companions=_build_companions(training, context, settings))


def read_settings(training: Training) -> Mapping[str, str]:
    settings = dict(_DEFAULTS)
    for entry in (*training.runtime_env, *training.env):
        if entry["name"] in settings and entry.get("value"):
            settings[entry["name"]] = entry["value"]
    return settings


def _build_mounts(config: str) -> tuple[Fields, ...]:
    return (
        {"name": "flux-install", "mountPath": "/mnt/flux"},
        {"name": "spack-install", "mountPath": "/opt/software"},
        {"name": config, "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
        {"name": "flux-curve", "mountPath": "/curve", "readOnly": True},
        {"name": "shared-memory", "mountPath": "/dev/shm", "readOnly": True},
    )


def _build_volumes(name: str, config: str) -> tuple[Fields, ...]:
    return (
        {"name": "spack-install", "emptyDir": {}},
        {"name": "flux-install", "emptyDir": {}},
        {"name": config, "configMap": {"name": config, "defaultMode": 0o755}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        {"name": "flux-curve", "secret": {"secretName": f"{name}-flux-curve", "defaultMode": 0o400}},
    )


def _build_companions(
    training: Training, context: FrameworkContext, settings: Mapping[str, str]
) -> tuple[Companion, ...]:
    def make_scripts() -> Object:
        return {"data": {"entrypoint.sh": render_entrypoint(training, settings), "init.sh": INIT}}

    def make_certificate() -> Object:
        return {"data": {"curve.cert": encode_data(render_certificate(training.name, context.make_curve_keys()))}}

    return (
        Companion(CONFIG_MAPS, "ConfigMap", f"{training.name}-flux-entrypoint", make_scripts),
        Companion(SECRETS, "Secret", f"{training.name}-flux-curve", make_certificate, once=True),
    )


def render_certificate(name: str, pair: KeyPair) -> str:
    return f"""metadata
    name = "{name}"
curve
    public-key = "{pair.public}"
    secret-key = "{pair.private}"
"""


INIT = """#!/bin/bash
# Copies the Flux installation of this image to the volume that the training container mounts.
set -euo pipefail
mkdir -p /mnt/flux/software
cp -R /opt/software/* /mnt/flux/software/
cp -R /opt/view /mnt/flux/view
touch /mnt/flux/installed
"""


def render_entrypoint(training: Training, settings: Mapping[str, str]) -> str:
    nodes = training.num_nodes
    asked = training.num_proc_per_node
    processes = asked if isinstance(asked, int) else 1
    gpus = count_gpus(training.resources)
    hosts = f"{training.name}-{NODE}-0-[0-{nodes - 1}]" if nodes > 1 else f"{training.name}-{NODE}-0-0"
    run = f"flux run -N {nodes} -n {processes * nodes}" + (f" -g {gpus}" if gpus else "")
    resources = f"--cores=0-{processes - 1}" + (f" --gpu=0-{gpus - 1}" if gpus else "")
    domain = f"{training.subdomain}.{training.namespace}.svc.cluster.local"
    return f"""#!/bin/bash
# Starts this node's Flux broker; the first node also runs the job, the others serve until it has ended.
set -uo pipefail
cp -R /mnt/flux/software/* /opt/software/ 2>/dev/null || true
export PATH=/mnt/flux/view/bin:$PATH LD_LIBRARY_PATH=/mnt/flux/view/lib:${{LD_LIBRARY_PATH:-}}
mkdir -p /tmp/flux/config /tmp/flux/run
install -m 0400 /curve/curve.cert /tmp/flux/curve.cert
flux R encode --hosts='{hosts}' {resources} --local > /tmp/flux/R
cat > /tmp/flux/config/broker.toml <<'SETTINGS'
[access]
allow-guest-user = true
allow-root-owner = true
[bootstrap]
curve_cert = "/tmp/flux/curve.cert"
default_port = {_BROKER_PORT}
default_bind = "tcp://{settings["FLUX_NETWORK_DEVICE"]}:%p"
default_connect = "tcp://%h.{domain}:%p"
hosts = [ {{ host = "{hosts}" }} ]
[resource]
path = "/tmp/flux/R"
[sched-fluxion-qmanager]
queue-policy = "{settings["FLUX_QUEUE_POLICY"]}"
SETTINGS
options=(-o --config /tmp/flux/config/broker.toml -Stbon.fanout=256 -Srundir=/tmp/flux/run)
if [ "$(hostname)" = "{training.name}-{NODE}-0-0" ]; then
    if [ -z "$1" ]; then
        exec flux start "${{options[@]}}"
    fi
    eval "exec flux start \\"\\${{options[@]}}\\" {run} $1"
fi
until flux start "${{options[@]}}"; do
    sleep 15
done
"""


def _list_problems(training: Training, context: FrameworkContext) -> Sequence[str]:
    problems = []
    if not context.on_cluster:
        problems.append("mlPolicy.flux of the runtime: there is no Flux broker on this machine")
    if not any(job["name"] == NODE for job in training.jobs):
        problems.append(f"mlPolicy.flux of a runtime without a job named {NODE}")
    return problems


FRAMEWORK = Framework("flux", _inject, _list_problems)
