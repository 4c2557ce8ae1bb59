"""The ClusterTrainingRuntimes that Trainer 2.1 ships, as far as the recorded cases use them.

Trainer 2.1 keeps no snapshot of a job's runtime, so they cannot be read from the recordings. These are facts of the
release: names, images without host, policies and the order of jobs. `tools/import_golden.py` writes them beside the
cases; that upstream made the recorded JobSets of them is what the cases check.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TORCHTUNE = "torchtune-llama3.2-1b"
TUNE_COMMAND = (
    "tune",
    "run",
    "--rdzv_endpoint=localhost:29500",
    "full_finetune_distributed",
    "--config",
    "llama3_2/1B_full",
    "dataset=torchtune.datasets.instruct_dataset",
    "dataset.source=parquet",
    "dataset.data_dir=/workspace/dataset/data",
    "output_dir=/workspace/output",
    "tokenizer.path=/workspace/model/original/tokenizer.model",
    "checkpointer.checkpoint_dir=/workspace/model",
)


def build_runtimes() -> list[Object]:
    return [
        _build_mpi("deepspeed-distributed", "deepspeed"),
        _build_mpi("mlx-distributed", "mlx"),
        _build(
            "torch-distributed",
            "torch",
            {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
            [_job("node", "trainer", {"name": "node", "image": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime"})],
        ),
        _build_torchtune(),
    ]


def _build(name: str, framework: str, policy: Object, jobs: list[Object], **jobset: Any) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": framework}},
        "spec": {"mlPolicy": policy, "template": {"spec": {**jobset, "replicatedJobs": jobs}}},
    }


def _job(name: str, ancestor: str | None, container: Object, *, pod: Object | None = None, **extra: Any) -> Object:
    template: Object = {"spec": {"template": {"spec": {**(pod or {}), "containers": [container]}}}}
    if ancestor:
        template["metadata"] = {"labels": {ANCESTOR: ancestor}}
    return {"name": name, **extra, "template": template}


def _build_mpi(name: str, framework: str) -> Object:
    container: Object = {
        "name": "node",
        "image": f"kubeflow/trainer/{framework}-runtime:v2.1.0",
        "securityContext": {"runAsUser": 1000},
    }
    worker = {
        **container,
        "command": ["/usr/sbin/sshd"],
        "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
        "readinessProbe": {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5},
    }
    policy = {
        "mpiImplementation": "OpenMPI",
        "numProcPerNode": 1,
        "runLauncherAsNode": True,
        "sshAuthMountPath": "/home/mpiuser/.ssh",
    }
    return _build(
        name,
        framework,
        {"numNodes": 1, "mpi": policy},
        [_job("launcher", "trainer", container), _job("node", None, worker)],
        network={"publishNotReadyAddresses": True},
        successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]},
    )


def _build_torchtune() -> Object:
    pod = {"volumes": [{"name": "initializer", "persistentVolumeClaim": {"claimName": TORCHTUNE}}]}
    mount = {"volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    sources = {
        "dataset-initializer": "hf://tatsu-lab/alpaca",
        "model-initializer": "hf://meta-llama/Llama-3.2-1B-Instruct",
    }
    jobs = []
    for step, uri in sources.items():
        env = [{"name": "STORAGE_URI", "value": uri}]
        container = {"name": step, "image": f"kubeflow/trainer/{step}:v2.1.0", "env": env, **mount}
        jobs.append(_job(step, step, container, pod=pod))
    trainer = {
        "name": "node",
        "image": "kubeflow/trainer/torchtune-trainer:v2.1.0",
        "command": list(TUNE_COMMAND),
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        **mount,
    }
    after = [{"name": step, "status": "Complete"} for step in sources]
    jobs.append(_job("node", "trainer", trainer, pod=pod, dependsOn=after))
    return _build(TORCHTUNE, "torchtune", {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}, jobs)
