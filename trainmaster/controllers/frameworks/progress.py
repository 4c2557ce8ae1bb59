"""How training code reports its progress: three variables and a volume in every container of the trainer's Pods.

The names, the path and the token (valid for an hour, for the audience of that TrainJob) are those of upstream's plugin
`TrainJobStatus`. If the reports go to the API server itself, its certificates are in a ConfigMap that exists in every
namespace; otherwise each job gets its own ConfigMap, as upstream.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.training import reports
from trainmaster.api.training.steps import find_job, list_container_names
from trainmaster.controllers.frameworks.contract import (
    Companion,
    ContainerPart,
    FrameworkContext,
    Injection,
    ProgressServer,
    Training,
)

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"
SECONDS = 3600
_ROOT_CA = "kube-root-ca.crt"


def inject(training: Training, context: FrameworkContext) -> Injection:
    server = context.progress
    job = find_job({"replicatedJobs": list(training.jobs)}, training.trainer_job) if training.trainer_job else None
    if server is None or job is None:
        return Injection()
    env = (
        {"name": URL, "value": server.url + reports.build_path(training.namespace, training.name)},
        {"name": CA_CERT, "value": f"{reports.FOLDER}/ca.crt"},
        {"name": TOKEN, "value": f"{reports.FOLDER}/token"},
    )
    mounts = ({"name": reports.VOLUME, "mountPath": reports.FOLDER, "readOnly": True},)
    volumes = (_build_volume(training, server),)
    parts = tuple(
        ContainerPart(training.trainer_job, name, env=env, mounts=mounts, volumes=volumes)
        for name in list_container_names(job)
    )
    return Injection(parts=parts, companions=list_companions(training.name, context))


def list_companions(name: str, context: FrameworkContext) -> tuple[Companion, ...]:
    server = context.progress
    if server is None or not server.ca:
        return ()
    data = {"data": {"ca.crt": server.ca}}
    return (Companion(CONFIG_MAPS, "ConfigMap", _name_config_map(name), lambda: data),)


def _name_config_map(name: str) -> str:
    return f"{name}-tls-config"


def _build_volume(training: Training, server: ProgressServer) -> Fields:
    audience = reports.build_audience(training.namespace, training.name)
    token = {"audience": audience, "expirationSeconds": SECONDS, "path": "token"}
    name = _name_config_map(training.name) if server.ca else _ROOT_CA
    ca = {"name": name, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    return {"name": reports.VOLUME, "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": ca}]}}
