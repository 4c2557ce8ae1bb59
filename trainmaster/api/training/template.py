"""The runtime's template with what the TrainJob says, before any framework adds its part.

Precedence, low to high: runtime, overrides in their order, `spec.initializer` and `spec.trainer`. Environment of the
trainer and the number of Pods are left to the frameworks, because they come between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import orjson

from trainmaster.api.meta import Object
from trainmaster.api.training import overrides
from trainmaster.api.training.devices import merge_resources
from trainmaster.api.training.steps import (
    DATASET,
    INITIALIZERS,
    MODEL,
    NODE,
    TRAINER,
    find_ancestor,
    find_container,
    get_template_spec,
    list_jobs,
    list_node_jobs,
)


def fill_template(trainjob: Mapping[str, Any], runtime: Mapping[str, Any]) -> Object:
    """A JobSet spec of its own, to be changed further."""
    merged = overrides.merge_jobs(dict(get_template_spec(runtime)), trainjob)
    spec: Object = orjson.loads(orjson.dumps(merged))
    wanted = trainjob.get("spec") or {}
    for job in list_jobs(spec):
        ancestor = find_ancestor(job)
        if ancestor in (TRAINER, DATASET, MODEL):
            job["replicas"] = 1
        if ancestor is not None and ancestor in INITIALIZERS:
            _fill_initializer(job, ancestor, (wanted.get("initializer") or {}).get(INITIALIZERS[ancestor]))
        elif ancestor == TRAINER:
            _fill_trainer(job, wanted.get("trainer") or {})
    _fill_resources(runtime, list_jobs(spec), (wanted.get("trainer") or {}).get("resourcesPerNode"))
    return spec


def _fill_initializer(job: Object, name: str, wanted: Mapping[str, Any] | None) -> None:
    container = find_container(job, name)
    if container is None or wanted is None:
        return
    env = list(container.get("env") or ())
    if wanted.get("storageUri") is not None:
        env = upsert_env(env, [{"name": "STORAGE_URI", "value": wanted["storageUri"]}])
    env = upsert_env(env, deepcopy(wanted.get("env") or ()))
    if env:
        container["env"] = env
    if wanted.get("secretRef"):
        container["envFrom"] = [*(container.get("envFrom") or ()), {"secretRef": wanted["secretRef"]}]


def _fill_trainer(job: Object, trainer: Mapping[str, Any]) -> None:
    container = find_container(job, NODE)
    if container is None:
        return
    for name in ("image", "command", "args"):
        if trainer.get(name):
            container[name] = trainer[name]


def _fill_resources(runtime: Mapping[str, Any], jobs: list[Object], wanted: Mapping[str, Any] | None) -> None:
    if not wanted:
        return
    for job in list_node_jobs(runtime, jobs):
        container = find_container(job, NODE)
        if container is not None:
            container["resources"] = merge_resources(container.get("resources") or {}, wanted)


def upsert_env(env: Iterable[Mapping[str, Any]], more: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By name: a known one is replaced in its place, a new one comes last."""
    by_name = {entry["name"]: entry for entry in env}
    for entry in more:
        by_name[entry["name"]] = entry
    return list(by_name.values())
