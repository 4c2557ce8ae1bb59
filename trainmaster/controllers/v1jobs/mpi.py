"""What only MPIJobs have: a launcher that starts processes in the workers with `kubectl exec`. Pure.

The launcher reads the workers from a hostfile in a ConfigMap, and has a ServiceAccount that may execute commands in
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from trainmaster.api.v1jobs.frameworks import LAUNCHER, WORKER
from trainmaster.api.v1jobs.mpijobs import CONFIG, CONFIG_PATH, EXEC, KUBECTL, KUBECTL_PATH, build_launcher_name
from trainmaster.api.v1jobs.replicas import ReplicaSpec
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.v1jobs.names import build_name
from trainmaster.jobs.models.v1jobs import V1Job

DELIVERY_IMAGE = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
_RBAC = "rbac.authorization.k8s.io"
_HOSTS, _DISCOVER = "hostfile", "discover_hosts.sh"
_EXECUTABLE, _READABLE = 0o555, 0o444


def complete(job: V1Job, replica: ReplicaSpec, spec: Object, containers: list[Object]) -> Object:
    """The spec of a launcher or a worker."""
    if not containers:
        return spec
    build = _complete_launcher if replica.type == LAUNCHER else _complete_worker
    return build(job, spec, containers)


def _complete_worker(job: V1Job, spec: Object, containers: list[Object]) -> Object:
    first = containers[0]
    if not first.get("command"):
        first = {**first, "command": ["sleep"], "args": ["365d"]}
    first = _mount(first, {"name": CONFIG, "mountPath": CONFIG_PATH})
    items = [{"key": EXEC, "path": EXEC, "mode": _EXECUTABLE}]
    volumes = [*list_items(spec, "volumes"), _build_config_volume(job, items)]
    return {**spec, "containers": [first, *containers[1:]], "volumes": volumes}


def _complete_launcher(job: V1Job, spec: Object, containers: list[Object]) -> Object:
    mounts = [{"name": KUBECTL, "mountPath": KUBECTL_PATH}, {"name": CONFIG, "mountPath": CONFIG_PATH}]
    first = _mount(containers[0], *mounts)
    first["env"] = [*list_items(first, "env"), *_list_variables(first, is_gpu_launcher(spec))]
    items = [
        {"key": EXEC, "path": EXEC, "mode": _EXECUTABLE},
        {"key": _HOSTS, "path": _HOSTS, "mode": _READABLE},
        {"key": _DISCOVER, "path": _DISCOVER, "mode": _EXECUTABLE},
    ]
    own = [{"name": KUBECTL, "emptyDir": {}}, _build_config_volume(job, items)]
    return {
        **spec,
        "serviceAccountName": get_account(job),
        "initContainers": [*list_items(spec, "initContainers"), _build_delivery(job, mounts)],
        "containers": [first, *containers[1:]],
        "volumes": [*list_items(spec, "volumes"), *own],
    }


def _mount(container: Fields, *mounts: Object) -> Object:
    return {**container, "volumeMounts": [*list_items(container, "volumeMounts"), *mounts]}


def _build_config_volume(job: V1Job, items: Sequence[Object]) -> Object:
    return {"name": CONFIG, "configMap": {"name": f"{job.name}-config", "items": list(items)}}


def _build_delivery(job: V1Job, mounts: Sequence[Object]) -> Object:
    amounts = {"cpu": "100m", "ephemeral-storage": "5Gi", "memory": "512Mi"}
    return {
        "name": "kubectl-delivery",
        "image": DELIVERY_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": KUBECTL_PATH}, {"name": "NAMESPACE", "value": job.namespace}],
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": list(mounts),
    }


def _list_variables(container: Fields, has_gpu: bool) -> Iterator[Object]:
    agent = f"{CONFIG_PATH}/{EXEC}"
    yield {"name": "OMPI_MCA_plm_rsh_agent", "value": agent}
    yield {"name": "OMPI_MCA_orte_default_hostfile", "value": f"{CONFIG_PATH}/{_HOSTS}"}
    if not has_gpu:
        # Otherwise the launcher would see the GPUs of its machine, which it did not ask for.
        yield {"name": "NVIDIA_VISIBLE_DEVICES"}
        yield {"name": "NVIDIA_DRIVER_CAPABILITIES"}
    own = {variable.get("name") for variable in list_items(container, "env")}
    for name, value in (("I_MPI_HYDRA_BOOTSTRAP", "rsh"), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", agent)):
        if name not in own:
            yield {"name": name, "value": value}


def is_gpu_launcher(spec: Fields) -> bool:
    """Whether the launcher has GPUs, and therefore takes part in the training."""
    for container in list_items(spec, "containers"):
        if any("gpu" in name for name in read_fields(container, "resources", "limits")):
            return True
    return False


def get_account(job: V1Job) -> str:
    launcher = job.replicas.get(LAUNCHER)
    chosen = "" if launcher is None else launcher.pod_spec.get("serviceAccountName")
    return str(chosen or build_launcher_name(job.name))


def list_objects(job: V1Job, running: Sequence[str]) -> list[tuple[GVR, Object]]:
    """Everything besides Pods, in the order of creation. `running`: the names of the workers that run."""
    name = build_launcher_name(job.name)
    subject = {"kind": "ServiceAccount", "name": get_account(job), "namespace": job.namespace}
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    return [
        (SERVICE_ACCOUNTS, _build(job, "v1", "ServiceAccount", get_account(job))),
        (CONFIG_MAPS, {**_build(job, "v1", "ConfigMap", f"{job.name}-config"), "data": _build_data(job, running)}),
        (ROLES, {**_build(job, f"{_RBAC}/v1", "Role", name), "rules": _list_rules(job)}),
        (
            ROLE_BINDINGS,
            {**_build(job, f"{_RBAC}/v1", "RoleBinding", name), "subjects": [subject], "roleRef": reference},
        ),
    ]


def _build(job: V1Job, api_version: str, kind: str, name: str) -> Object:
    meta = {
        "name": name,
        "namespace": job.namespace,
        "labels": {"app": job.name},
        "ownerReferences": [build_owner_reference(job.raw)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _list_workers(job: V1Job) -> list[str]:
    worker = job.replicas.get(WORKER)
    return [] if worker is None else [build_name(job, worker, index) for index in range(worker.count)]


def _list_rules(job: V1Job) -> list[Object]:
    rules: list[Object] = [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}]
    workers = _list_workers(job)
    if workers:
        # Without names, the rule would apply to every Pod of the namespace.
        execute = {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/exec"], "resourceNames": workers}
        rules.append(execute)
    return rules


def _build_data(job: V1Job, running: Sequence[str]) -> Object:
    slots = job.spec.get("slotsPerWorker") or 1
    launcher = job.replicas.get(LAUNCHER)
    own = [build_launcher_name(job.name)] if launcher is not None and is_gpu_launcher(launcher.pod_spec) else []
    main = job.spec.get("mainContainer")
    chosen = f" --container {main}" if main else ""
    discovered = [f"\necho {name}:{slots}" for name in (*own, *sorted(running))]
    return {
        EXEC: (
            "#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n"
            f'{KUBECTL_PATH}/kubectl exec ${{POD_NAME}}{chosen} -- /bin/sh -c "$*"'
        ),
        _HOSTS: "".join(f"{name} slots={slots}\n" for name in (*own, *_list_workers(job))),
        _DISCOVER: "#!/bin/sh" + "".join(discovered),
    }
