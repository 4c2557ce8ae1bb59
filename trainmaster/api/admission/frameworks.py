"""The rules of each framework for TrainJobs, with upstream's messages (Trainer 2.3; 2.1 if only that has the field)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainmaster.api import fields
from trainmaster.api.admission.contract import Findings, Lookup
from trainmaster.api.admission.rendering import order
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.training import reserved, torchtune
from trainmaster.api.training.devices import count_gpus
from trainmaster.api.training.overrides import merge_metadata
from trainmaster.api.training.steps import (
    LAUNCHER,
    NODE,
    decide_num_nodes,
    find_container,
    find_job,
    find_trainer,
    get_pod,
    get_runtime_spec,
    get_template_spec,
    list_container_names,
    list_jobs,
    read_framework,
)

_WORDS = ("auto", "cpu", "gpu")
_NUM_PROC = "spec.trainer.numProcPerNode"
_INSTALLER = "flux-installer"
_QUEUE = "scheduling.volcano.sh/queue-name"
_PRIORITY_CLASSES = GVR("scheduling.k8s.io", "v1", "priorityclasses")
_SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")


def check_framework(trainjob: Fields, runtime: Fields, filled: Object) -> Findings:
    """`filled` is the runtime's template with the TrainJob's values."""
    name, policy = read_framework(runtime)
    check = _CHECKS.get(name, _check_other)
    findings = Findings()
    check(findings, trainjob, runtime, filled, policy)
    return findings


def check_gang(trainjob: Fields, runtime: Fields, lookup: Lookup) -> list[FieldError]:
    if "volcano" not in (get_runtime_spec(runtime).get("podGroupPolicy") or {}):
        return []
    errors: list[FieldError] = []
    annotations = merge_metadata(trainjob, runtime).get("annotations") or {}
    if _QUEUE in annotations and not annotations[_QUEUE]:
        errors.append(fields.invalid(f"spec.annotations[{_QUEUE}]", "", "Volcano queue name must not be empty"))
    for job in list_jobs(get_template_spec(runtime)):
        priority = get_pod(job).get("priorityClassName")
        if not priority or priority in _SYSTEM_PRIORITIES or lookup.find(_PRIORITY_CLASSES, "", priority) is not None:
            continue
        missing = f'priorityclasses.scheduling.k8s.io "{priority}" not found'
        text = f'PriorityClass "{priority}" doesn\'t exist: {missing}'
        errors.append(fields.invalid("spec.templateSpec.priorityClassName", priority, text))
    return errors


def _check_torch(
    findings: Findings, trainjob: Fields, runtime: Fields, filled: Object, policy: Mapping[str, Any]
) -> None:
    trainer = trainjob["spec"].get("trainer") or {}
    _check_words(findings, trainer)
    for target in (policy.get("envInjection") or {}).get("targets") or ():
        job = find_job(get_template_spec(runtime), target["jobName"])
        known = [*list_container_names(job or {}), *list_container_names(job or {}, "initContainers")]
        for name in target.get("containerNames") or ():
            if name not in known:
                where = f'envInjection target podSet "{target["jobName"]}" container "{name}"'
                text = f"{where} not found in runtime template"
                findings.errors.append(_refuse_runtime(trainjob, text))
    names = {*reserved.TORCH, *(reserved.TORCH_ELASTIC if policy.get("elasticPolicy") else ())}
    taken = sorted(entry["name"] for entry in trainer.get("env") or () if entry["name"] in names)
    if taken == [reserved.TORCH_NUM_NODES] and not policy.get("elasticPolicy"):
        taken = _let_in_num_nodes(findings, trainjob, runtime, filled)
    _refuse_env(findings, trainer, taken)
    if torchtune.is_torchtune(trainer):
        findings.errors += _check_torchtune(trainjob, runtime, filled)


def _let_in_num_nodes(findings: Findings, trainjob: Fields, runtime: Fields, filled: Object) -> list[str]:
    """Accepts PET_NNODES if it equals the number of nodes, because a common recipe sets it."""
    nodes = str(_count_nodes(trainjob, runtime, filled))
    env = trainjob["spec"]["trainer"]["env"]
    given = next(entry for entry in env if entry["name"] == reserved.TORCH_NUM_NODES)
    if str(given.get("value", "")) != nodes:
        return [reserved.TORCH_NUM_NODES]
    findings.warnings.append(f"spec.trainer.env: {reserved.TORCH_NUM_NODES} is set for you; remove it")
    return []


def _count_nodes(trainjob: Fields, runtime: Fields, filled: Object) -> int:
    trainer = find_trainer(filled)
    parallelism = 1
    if trainer is not None:
        parallelism = ((trainer["template"].get("spec") or {}).get("parallelism")) or 1
    return decide_num_nodes(trainjob, runtime, parallelism)


def _refuse_env(findings: Findings, trainer: Mapping[str, Any], taken: Iterable[str]) -> None:
    taken = sorted(taken)
    if taken:
        text = f"must not have reserved envs, invalid envs configured: [{' '.join(taken)}]"
        findings.errors.append(fields.invalid("spec.trainer.env", order(trainer["env"]), text))


def _refuse_runtime(trainjob: Fields, text: str) -> FieldError:
    return fields.invalid("spec.runtimeRef", order(trainjob["spec"]["runtimeRef"]), text)


def _check_words(findings: Findings, trainer: Mapping[str, Any]) -> None:
    asked = trainer.get("numProcPerNode")
    if isinstance(asked, str) and asked not in _WORDS:
        findings.errors.append(fields.invalid(_NUM_PROC, asked, "must have an int value or [auto cpu gpu]"))


def _check_torchtune(trainjob: Fields, runtime: Fields, filled: Object) -> list[FieldError]:
    spec = trainjob["spec"]
    trainer = spec["trainer"]
    args = [str(arg) for arg in trainer.get("args") or ()]
    name = spec["runtimeRef"]["name"]
    model = torchtune.find_model(name)
    nodes = _count_nodes(trainjob, runtime, filled)
    errors: list[FieldError] = []
    if model not in torchtune.MODELS:
        text = f"must have a supported pretrained model, invalid model configured: {model}"
        errors.append(fields.invalid("spec.runtimeRef.name", name, text))
    if nodes > 1 and model in torchtune.MODELS and model != torchtune.LARGEST:
        errors.append(fields.invalid("spec.trainer.numNodes", nodes, f"must be 1 for {model} model"))
    if torchtune.uses_qlora(args):
        errors += _check_qlora(trainer, filled, name, model, nodes)
    if nodes > 1 and torchtune.uses_lora(args):
        text = "LoRA fine-tuning is not supported for multi-node training in TorchTune"
        errors.append(fields.invalid("spec.trainer.numNodes", nodes, text))
    for index, arg in enumerate(args):
        if key := torchtune.find_managed_config(arg):
            text = f'must not set immutable config "{key}" in trainer args; it is managed by the runtime'
            errors.append(fields.invalid(f"spec.trainer.args[{index}]", arg, text))
    return errors


def _check_qlora(trainer: Mapping[str, Any], filled: Object, name: str, model: str, nodes: int) -> list[FieldError]:
    if model == torchtune.QWEN:
        return [fields.invalid("spec.runtimeRef.name", name, f"QLoRA is not supported for {model} model")]
    job = find_trainer(filled)
    container = (find_container(job, NODE) if job is not None else None) or {}
    shape = torchtune.RecipeShape(
        nodes, trainer.get("numProcPerNode", "auto"), count_gpus(container.get("resources") or {})
    )
    if model not in torchtune.SINGLE_DEVICE_QLORA or shape.is_single_device:
        return []
    processes = f"must be auto or 1 for {model} model when using QLoRA"
    devices = f"must have gpu resource with value 1 for {model} model when using QLoRA"
    return [
        fields.invalid(_NUM_PROC, trainer.get("numProcPerNode"), processes),
        fields.invalid("spec.trainer.resourcesPerNode", trainer.get("resourcesPerNode"), devices),
    ]


def _check_mpi(
    findings: Findings, trainjob: Fields, runtime: Fields, filled: Object, policy: Mapping[str, Any]
) -> None:
    trainer = trainjob["spec"].get("trainer") or {}
    if isinstance(trainer.get("numProcPerNode"), str):
        text = "must have an int value for MPI TrainJob"
        findings.errors.append(fields.invalid(_NUM_PROC, trainer["numProcPerNode"], text))
    jobs = {job["name"] for job in list_jobs(get_template_spec(runtime))}
    nodes = trainer.get("numNodes") or 1
    if policy.get("runLauncherAsNode") and nodes >= 2 and not {LAUNCHER, NODE} <= jobs:
        text = (
            "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode does not have either launcher and node"
        )
        findings.errors.append(fields.invalid("spec.trainer.numNodes", nodes, text))
    _refuse_env(
        findings, trainer, (entry["name"] for entry in trainer.get("env") or () if entry["name"] in reserved.MPI)
    )
    if policy.get("mpiImplementation", "OpenMPI") != "OpenMPI":
        text = f"mlPolicy.mpi.mpiImplementation {policy['mpiImplementation']!r} doesn't supported; use OpenMPI"
        findings.errors.append(_refuse_runtime(trainjob, text))


def _check_xgboost(
    findings: Findings, trainjob: Fields, runtime: Fields, filled: Object, policy: Mapping[str, Any]
) -> None:
    trainer = trainjob["spec"].get("trainer") or {}
    _check_words(findings, trainer)
    for index, entry in enumerate(trainer.get("env") or ()):
        if entry["name"] in reserved.XGBOOST:
            text = f"{entry['name']} is reserved for the XGBoost runtime"
            findings.errors.append(fields.forbidden(f"spec.trainer.env[{index}]", text))


def _check_flux(
    findings: Findings, trainjob: Fields, runtime: Fields, filled: Object, policy: Mapping[str, Any]
) -> None:
    _check_words(findings, trainjob["spec"].get("trainer") or {})
    for job in list_jobs(get_template_spec(runtime)):
        if _INSTALLER in list_container_names(job, "initContainers"):
            text = f"InitContainer '{_INSTALLER}' is reserved"
            findings.errors.append(fields.invalid("spec.trainer.initContainers", _INSTALLER, text))


def _check_other(
    findings: Findings, trainjob: Fields, runtime: Fields, filled: Object, policy: Mapping[str, Any]
) -> None:
    """plain and JAX, which ignore the number of processes per node."""
    trainer = trainjob["spec"].get("trainer") or {}
    _check_words(findings, trainer)
    if trainer.get("numProcPerNode") is not None:
        name = read_framework(runtime)[0] or "no framework"
        findings.warnings.append(f"{_NUM_PROC} has no effect with this runtime ({name})")


_CHECKS: Mapping[str, Callable[[Findings, Fields, Fields, Object, Fields], None]] = {
    "torch": _check_torch,
    "mpi": _check_mpi,
    "xgboost": _check_xgboost,
    "flux": _check_flux,
}
