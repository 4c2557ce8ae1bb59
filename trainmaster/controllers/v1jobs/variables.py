"""The environment variables with which the Pods of a v1 job find one another, by framework. Pure.

They are appended after the user's own variables, so on duplicates these take effect, as upstream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import NOTHING
from trainmaster.api.v1jobs.frameworks import MASTER, SCHEDULER, WORKER
from trainmaster.api.v1jobs.replicas import ReplicaSpec, get_port
from trainmaster.controllers.v1jobs.names import build_name
from trainmaster.jobs.models.v1jobs import V1Job

_UNBUFFERED = ("PYTHONUNBUFFERED", "1")
_TUNER_SERVER_KEY = "tuner-server-key"

Pairs = list[tuple[str, str]]


def list_variables(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    """For one Pod; empty for MPI, whose launcher has variables of its own (`mpi`)."""
    build = _BUILDERS.get(job.framework.name)
    return [] if build is None else build(job, replica, index)


def _render(pairs: Pairs) -> list[Object]:
    return [{"name": name, "value": value} if value else {"name": name} for name, value in pairs]


def _count(job: V1Job) -> int:
    return sum(replica.count for replica in job.replicas.values())


def _pytorch(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    elastic: Fields = job.spec.get("elasticPolicy") or NOTHING
    processes = read_processes(job)
    master = job.replicas.get(MASTER)
    pairs: Pairs = [_UNBUFFERED]
    if master is not None:
        port, address = str(get_port(job.framework, master)), build_name(job, master, 0)
        world = _count(job) * (int(processes) if processes.isdecimal() else 1)
        rank = str(index if replica.type == MASTER else index + 1)
        pairs += [("MASTER_PORT", port), ("PET_MASTER_PORT", port)]
        pairs += [("MASTER_ADDR", address), ("PET_MASTER_ADDR", address)]
        pairs += [("WORLD_SIZE", str(world)), ("RANK", rank), ("PET_NODE_RANK", rank)]
    if processes:
        pairs.append(("PET_NPROC_PER_NODE", processes))
    pairs += _list_elastic(job, elastic) if elastic else [("PET_NNODES", str(_count(job)))]
    return _render(pairs)


def read_processes(job: V1Job) -> str:
    """`nprocPerNode` of a PyTorchJob, whose default is `auto`; "" if the older field sets it."""
    elastic: Fields = job.spec.get("elasticPolicy") or NOTHING
    default = "auto" if elastic.get("nProcPerNode") is None else ""
    return str(job.spec.get("nprocPerNode") or default)


def read_bounds(job: V1Job) -> tuple[int, int]:
    """The fewest and the most workers of an elastic job."""
    elastic: Fields = job.spec.get("elasticPolicy") or NOTHING
    worker = job.replicas.get(WORKER)
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    least = most if least is None else least
    most = least if most is None else most
    if least is None or most is None:
        least = most = 1 if worker is None else worker.count
    return least, most


def _list_elastic(job: V1Job, elastic: Fields) -> Pairs:
    worker = job.replicas[WORKER]
    host = elastic.get("rdzvHost") or build_name(job, worker, 0)
    port = elastic.get("rdzvPort") or get_port(job.framework, worker)
    least, most = read_bounds(job)
    pairs: Pairs = [
        ("PET_RDZV_ENDPOINT", f"{host}:{port}"),
        ("PET_RDZV_BACKEND", elastic.get("rdzvBackend") or "c10d"),
        ("PET_NNODES", f"{least}:{most}"),
    ]
    for field, name in (
        ("maxRestarts", "PET_MAX_RESTARTS"),
        ("nProcPerNode", "PET_NPROC_PER_NODE"),
        ("rdzvId", "PET_RDZV_ID"),
    ):
        if elastic.get(field) is not None:
            pairs.append((name, str(elastic[field])))
    if elastic.get("rdzvConf"):
        text = ",".join(f"{entry.get('key', '')}={entry.get('value', '')}" for entry in elastic["rdzvConf"])
        pairs.append(("PET_RDZV_CONF", text))
    if elastic.get("standalone"):
        pairs.append(("PET_STANDALONE", ""))
    return pairs


def _tensorflow(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    if _count(job) == 1:
        return []
    hosts = {
        other.word: [_build_host(job, other, number) for number in range(other.count)]
        for other in job.replicas.values()
    }
    task = {"type": replica.word, "index": index}
    config: Object
    if job.spec.get("enableDynamicWorker"):
        config = {"cluster": _list_sparse(hosts, replica.word, index), "task": task}
    else:
        config = {"cluster": dict(sorted(hosts.items())), "task": task, "environment": "cloud"}
    return _render([("TF_CONFIG", _dump(config))])


def _build_host(job: V1Job, replica: ReplicaSpec, index: int) -> str:
    return f"{build_name(job, replica, index)}.{job.namespace}.svc:{get_port(job.framework, replica)}"


def _list_sparse(hosts: Mapping[str, list[str]], word: str, index: int) -> Object:
    """Each worker knows itself and the parameter servers only, so that workers may come and go."""
    if word == "worker":
        return {"worker": {str(index): hosts[word][index]}, "ps": hosts.get("ps")}
    return {"worker": {}, "ps": [hosts[word][index]] if word == "ps" else []}


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _xgboost(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    master, worker = job.replicas[MASTER], job.replicas.get(WORKER)
    total = _count(job)
    rank = index if replica.type == MASTER else index + master.count
    pairs: Pairs = [
        ("MASTER_PORT", str(get_port(job.framework, master))),
        ("MASTER_ADDR", build_name(job, master, 0)),
        ("WORLD_SIZE", str(total)),
        ("RANK", str(rank)),
        _UNBUFFERED,
    ]
    if worker is not None and total > 1:
        addresses = ",".join(build_name(job, worker, number) for number in range(total - 1))
        pairs += [("WORKER_PORT", str(get_port(job.framework, worker))), ("WORKER_ADDRS", addresses)]
    return _render(pairs)


def _paddle(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    first = job.replicas.get(MASTER) or job.replicas[WORKER]
    port = get_port(job.framework, first)
    found = _render([_UNBUFFERED, ("PADDLE_JOB_ID", job.name), ("PADDLE_NNODES", str(_count(job)))])
    if replica.type == first.type and index == 0:
        found.append({"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
        found += _render([("PADDLE_MASTER", f"$(POD_IP_DUMMY):{port}")])
    else:
        found += _render([("PADDLE_MASTER", f"{build_name(job, first, 0)}:{port}")])
    if MASTER in job.replicas:
        found += _render([("PADDLE_SERVER_NUM" if replica.type == MASTER else "PADDLE_TRAINER_NUM", "1")])
    return found


def _jax(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    worker = job.replicas[WORKER]
    pairs: Pairs = [
        _UNBUFFERED,
        ("COORDINATOR_PORT", str(get_port(job.framework, worker))),
        ("COORDINATOR_ADDRESS", build_name(job, worker, 0)),
        ("NUM_PROCESSES", str(_count(job))),
        ("PROCESS_ID", str(index)),
    ]
    return _render(pairs)


def _mxnet(job: V1Job, replica: ReplicaSpec, index: int) -> list[Object]:
    cluster, keys = {}, {}
    for other in job.replicas.values():
        port = get_port(job.framework, other)
        names = [build_name(job, other, number) for number in range(other.count)]
        cluster[other.word] = [{"url": name, "port": port} for name in names]
        meta: Fields = other.template.get("metadata") or NOTHING
        keys[other.word] = (meta.get("annotations") or NOTHING).get(_TUNER_SERVER_KEY, "")
    config = {
        "cluster": dict(sorted(cluster.items())),
        "labels": dict(sorted(keys.items())),
        "task": {"type": replica.word, "index": index},
    }
    scheduler = job.replicas.get(SCHEDULER)
    server, worker = job.replicas.get("Server"), job.replicas.get(WORKER)
    pairs: Pairs = [
        ("MX_CONFIG", _dump(config)),
        ("DMLC_PS_ROOT_PORT", "0" if scheduler is None else str(get_port(job.framework, scheduler))),
        ("DMLC_PS_ROOT_URI", "" if scheduler is None else build_name(job, scheduler, 0)),
        ("DMLC_NUM_SERVER", str(0 if server is None else server.count)),
        ("DMLC_NUM_WORKER", str(0 if worker is None else worker.count)),
        ("DMLC_ROLE", replica.word),
        ("DMLC_USE_KUBERNETES", "1"),
    ]
    if replica.type == WORKER:
        pairs.append(("DMLC_WORKER_ID", str(index)))
    return _render(pairs)


_BUILDERS: dict[str, Callable[[V1Job, ReplicaSpec, int], list[Object]]] = {
    "pytorch": _pytorch,
    "tensorflow": _tensorflow,
    "xgboost": _xgboost,
    "paddle": _paddle,
    "jax": _jax,
    "mxnet": _mxnet,
}
