"""Converts one v1 job. Pure: a job in, objects and a report out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import (
    EXIT_CODE,
    JAX,
    LAUNCHER,
    MASTER,
    MPI,
    MXNET,
    NEVER,
    PADDLE,
    PYTORCH,
    SCHEDULER,
    TENSORFLOW,
    WORKER,
    XGBOOST,
)
from trainmaster.api.v1jobs.replicas import ReplicaSpec, get_port
from trainmaster.jobs.conversion.roles import NODE, ConvertedRole, build_replicated_job, find_main
from trainmaster.jobs.models.v1jobs import V1Job

_RESTARTS = 6
"""Without a limit v1 restarts forever; the shipped runtimes restart this often."""
_INDEX: Object = {
    "name": "JOB_INDEX",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}},
}
_SSHD = ("/usr/sbin/sshd", "-De")
_INTERPRETERS = ("python", "python3")


@dataclass(slots=True)
class Conversion:
    runtime: Object
    trainjob: Object
    same: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """What v2 cannot express, with what to do about it."""


def convert(job: V1Job) -> Conversion:
    found = _Converter(job)
    return found.convert()


class _Converter:
    def __init__(self, job: V1Job) -> None:
        self._job = job
        self._replicas = job.replicas
        self._result = Conversion({}, {})

    def convert(self) -> Conversion:
        job, result = self._job, self._result
        policy, roles = self._choose_roles()
        meta = {"name": job.name, **({"namespace": job.namespace} if job.namespace else {})}
        template: Object = {
            "replicatedJobs": [build_replicated_job(job, role) for role in roles],
            "failurePolicy": self._build_failure_policy(),
        }
        deciding = [role.name for role in roles if role.replica.type in job.framework.deciding and len(roles) > 1]
        if deciding:
            template["successPolicy"] = {"operator": "All", "targetReplicatedJobs": deciding}
        result.runtime = {
            "apiVersion": TRAIN_JOBS.api_version,
            "kind": "TrainingRuntime",
            "metadata": meta,
            "spec": {"mlPolicy": policy, "template": {"spec": template}},
        }
        spec: Object = {"runtimeRef": {"kind": "TrainingRuntime", "name": job.name}, **self._convert_policy()}
        result.trainjob = {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainJob", "metadata": meta, "spec": spec}
        self._report_names(roles)
        return result

    # Roles

    def _choose_roles(self) -> tuple[Object, list[ConvertedRole]]:
        framework = self._job.framework
        if framework is MPI:
            return self._convert_mpi()
        if framework in (TENSORFLOW, MXNET) or (framework is PADDLE and MASTER in self._replicas):
            return self._convert_plain()
        return self._convert_alike()

    def _convert_alike(self) -> tuple[Object, list[ConvertedRole]]:
        """Frameworks whose ranks are all alike: PyTorch, JAX, XGBoost, Paddle without servers."""
        job = self._job
        chosen = self._replicas.get(WORKER) or next(iter(self._replicas.values()))
        count = sum(replica.count for replica in self._replicas.values())
        policy: Object = {"numNodes": count}
        if job.framework is PYTORCH:
            processes = str(job.spec.get("nprocPerNode") or "auto")
            policy["torch"] = {"numProcPerNode": int(processes)} if processes.isdecimal() else {}
            self._report_pytorch(processes)
        elif job.framework in (JAX, XGBOOST):
            policy[job.framework.name] = {}
            self._report_variables()
        for replica in self._replicas.values():
            if replica is not chosen and replica.template != chosen.template:
                self._result.lost.append(
                    f"the template of {replica.type} differs from that of {chosen.type}: all ranks get the latter; "
                    "let the program read its rank instead"
                )
        env: list[Object] = []
        if job.framework is PADDLE:
            env = self._list_paddle(chosen, count)
        chosen = self._start_with_torchrun(chosen)
        return policy, [ConvertedRole(NODE, chosen, count, env, is_trainer=True)]

    def _convert_mpi(self) -> tuple[Object, list[ConvertedRole]]:
        slots = self._job.spec.get("slotsPerWorker") or 1
        launcher, worker = self._replicas[LAUNCHER], self._replicas.get(WORKER)
        nodes = worker.count if worker is not None else 0
        policy: Object = {
            "numNodes": max(1, nodes),
            "mpi": {"mpiImplementation": "OpenMPI", "numProcPerNode": slots, "sshAuthMountPath": "/root/.ssh"},
        }
        self._result.changes.append(
            "processes are started with ssh instead of kubectl exec: workers run sshd, and the images need sshd and ssh"
        )
        self._result.lost.append("/etc/mpi/discover_hosts.sh, which elastic Horovod reads: v2 has no such file")
        roles = [ConvertedRole("launcher", launcher, 1, is_trainer=True, depends_on=NODE)]
        return policy, [ConvertedRole(NODE, worker or launcher, max(1, nodes), command=_SSHD), *roles]

    def _convert_plain(self) -> tuple[Object, list[ConvertedRole]]:
        """Frameworks that v2 does not know: one replicated job for each role, and variables written here."""
        trainer = WORKER if WORKER in self._replicas else next(iter(self._replicas))
        roles = []
        for replica in self._replicas.values():
            decides_alone = replica.type == WORKER and self._does_first_worker_decide()
            roles.append(
                ConvertedRole(
                    replica.word,
                    replica,
                    replica.count,
                    [_INDEX, *self._list_plain_variables(replica)],
                    is_trainer=replica.type == trainer,
                    succeeds_with_first=decides_alone,
                )
            )
        return {"numNodes": self._replicas[trainer].count}, roles

    def _does_first_worker_decide(self) -> bool:
        job = self._job
        has_chief = any(name in self._replicas for name in job.framework.deciding)
        return job.framework is TENSORFLOW and not has_chief and job.spec.get("successPolicy") != "AllWorkers"

    # Variables

    def _name_host(self, role: str, index: int) -> str:
        """As a JobSet names its Pods."""
        return f"{self._job.name}-{role}-0-{index}.{self._job.name}"

    def _list_plain_variables(self, replica: ReplicaSpec) -> list[Object]:
        framework = self._job.framework
        if framework is TENSORFLOW:
            cluster = {
                one.word: [
                    f"{self._name_host(one.word, index)}:{get_port(framework, one)}" for index in range(one.count)
                ]
                for one in self._replicas.values()
            }
            if sum(one.count for one in self._replicas.values()) == 1:
                return []
            text = json.dumps({"cluster": dict(sorted(cluster.items())), "environment": "cloud"}, separators=(",", ":"))
            task = f'"task":{{"type":"{replica.word}","index":$(JOB_INDEX)}}'
            self._note_once(self._result.changes, "TF_CONFIG is written in the runtime: change it there if you scale")
            return [{"name": "TF_CONFIG", "value": f"{text[:-1]},{task}}}"}]
        if framework is MXNET:
            return self._list_mxnet(replica)
        master = self._replicas[MASTER]
        return self._list_paddle(master, sum(one.count for one in self._replicas.values()))

    def _list_mxnet(self, replica: ReplicaSpec) -> list[Object]:
        scheduler, framework = self._replicas.get(SCHEDULER), self._job.framework
        counts = {name: self._replicas[name].count if name in self._replicas else 0 for name in ("Server", WORKER)}
        pairs = {
            "DMLC_PS_ROOT_URI": "" if scheduler is None else self._name_host(scheduler.word, 0),
            "DMLC_PS_ROOT_PORT": "0" if scheduler is None else str(get_port(framework, scheduler)),
            "DMLC_NUM_SERVER": str(counts["Server"]),
            "DMLC_NUM_WORKER": str(counts[WORKER]),
            "DMLC_ROLE": replica.word,
        }
        if replica.type == WORKER:
            pairs["DMLC_WORKER_ID"] = "$(JOB_INDEX)"
        self._note_once(self._result.lost, "MX_CONFIG: programs that read it need DMLC_* instead")
        return [{"name": name, "value": value} for name, value in pairs.items()]

    def _list_paddle(self, first: ReplicaSpec, count: int) -> list[Object]:
        role = first.word if MASTER in self._replicas else NODE
        address = f"{self._name_host(role, 0)}:{get_port(self._job.framework, first)}"
        pairs = {"PADDLE_JOB_ID": self._job.name, "PADDLE_NNODES": str(count), "PADDLE_MASTER": address}
        self._note_once(self._result.changes, "PADDLE_* are written in the runtime: change them there if you scale")
        return [{"name": name, "value": value} for name, value in pairs.items()]

    def _start_with_torchrun(self, replica: ReplicaSpec) -> ReplicaSpec:
        """v2 tells ranks apart through torchrun only, so a program that is started with python needs it."""
        main = find_main(self._job, replica)
        command = list(list_items(main, "command"))
        if self._job.framework is not PYTORCH or main is None or not command or command[0] not in _INTERPRETERS:
            return replica
        if len(command) > 1 and command[1].startswith("-") and command[1] != "-m":
            self._result.lost.append(f"`{' '.join(command[:2])}` cannot be started with torchrun: put it into a file")
            return replica
        self._result.changes.append(f"`{command[0]}` becomes `torchrun`, which sets RANK, WORLD_SIZE and MASTER_ADDR")
        containers = [
            {**one, "command": ["torchrun", *command[1:]]} if one is main else one
            for one in list_items(replica.pod_spec, "containers")
        ]
        template = {**replica.template, "spec": {**replica.pod_spec, "containers": containers}}
        return ReplicaSpec(replica.type, replica.count, replica.restart_policy, template)

    # Policies

    def _convert_policy(self) -> Object:
        job, result, spec = self._job, self._result, {}
        for name in ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
            if job.policy.get(name) not in (None, False):
                spec[name] = job.policy[name]
                result.same.append(f"runPolicy.{name} is spec.{name}")
        if "ttlSecondsAfterFinished" in spec:
            result.changes.append("spec.ttlSecondsAfterFinished is a field of Trainmaster; upstream's Trainer has none")
        if job.policy.get("managedBy") == "kueue.x-k8s.io/multikueue":
            spec["managedBy"] = job.policy["managedBy"]
        if job.clean_pod_policy != "Running":
            result.changes.append(
                f"cleanPodPolicy {job.clean_pod_policy}: v2 stops Pods that still run at the end, and keeps the others"
            )
        if job.policy.get("schedulingPolicy"):
            result.lost.append("runPolicy.schedulingPolicy: set podGroupPolicy in the runtime if the cluster has one")
        return spec

    def _build_failure_policy(self) -> Object:
        limit = self._job.backoff_limit
        policies = {replica.restart_policy for replica in self._replicas.values()}
        restarts = 0 if policies == {NEVER} else _RESTARTS if limit is None else limit
        if restarts:
            self._result.changes.append(f"a failed rank restarts all ranks, at most {restarts} times")
        action = "FailJobSet" if EXIT_CODE in policies else "RestartJobSetAndIgnoreMaxRestarts"
        name = "permanent" if EXIT_CODE in policies else "disrupted"
        return {
            "maxRestarts": restarts,
            "rules": [{"name": name, "action": action, "onJobFailureReasons": ["PodFailurePolicy"]}],
        }

    # The report

    def _report_names(self, roles: Sequence[ConvertedRole]) -> None:
        job, result = self._job, self._result
        result.same.append("images, commands, variables, resources and volumes of the containers")
        first = roles[0].name
        result.changes.append(
            f"Pods are named {job.name}-{first}-0-INDEX-XXXXX instead of {job.name}-TYPE-INDEX, and have the labels of "
            "JobSets; there is one Service for the job"
        )
        result.changes.append(f"the container {job.framework.container} is called {NODE}")

    def _report_pytorch(self, processes: str) -> None:
        job, result = self._job, self._result
        if MASTER in self._replicas:
            result.changes.append("the job succeeds when all ranks do, not when the master does")
        if processes in ("gpu", "cpu"):
            result.lost.append(f"nprocPerNode {processes}: v2 decides by the resources of a node")
        if job.spec.get("elasticPolicy"):
            result.lost.append("elasticPolicy and kubectl scale: the number of nodes is fixed")

    def _report_variables(self) -> None:
        names: Fields = {
            JAX.name: "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID instead of COORDINATOR_ADDRESS, "
            "NUM_PROCESSES, PROCESS_ID",
            XGBOOST.name: "DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_TASK_ID, DMLC_NUM_WORKER instead of MASTER_ADDR, "
            "RANK, WORLD_SIZE, WORKER_ADDRS",
        }
        self._result.changes.append(f"variables: {names[self._job.framework.name]}")

    @staticmethod
    def _note_once(notes: list[str], text: str) -> None:
        if text not in notes:
            notes.append(text)
