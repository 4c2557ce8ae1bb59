"""The job kinds of training-operator: one declaration for all seven (`api.v1jobs.frameworks`).

Custom kinds, as upstream. Defaults are not stored, as upstream; only `spec.runPolicy` is, because the Python SDK cannot
read a job without it. Rules beyond the schema are in `api.v1jobs.validation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H, build_v1_spec
from trainmaster.api.declaring.kinds import (
    ALL_VERBS,
    READ,
    WRITE,
    Column,
    Kind,
    QuotaRules,
    RoleGrants,
    ScalePaths,
    TenantRules,
)
from trainmaster.api.labels import RESERVED_IN_TEMPLATES
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_spec
from trainmaster.api.schemas import load
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS, GROUP, MPI, VERSION, WORKER, V1Framework
from trainmaster.api.v1jobs.replicas import read_replicas


def _default(framework: V1Framework, job: Object) -> None:
    spec = job.get("spec")
    if isinstance(spec, dict) and framework.replicas_field in spec:
        policy = spec.setdefault("runPolicy", {})
        if isinstance(policy, dict):
            policy.setdefault("suspend", False)


def _get_state(job: Object, now: float) -> Any:
    conditions = (job.get("status") or {}).get("conditions") or []
    return conditions[-1].get("type") if conditions else None


def _list_gangs(framework: V1Framework, job: Fields) -> Iterator[tuple[int, Fields]]:
    for replica in read_replicas(framework, read_spec(job)).values():
        yield replica.count, replica.template


_STATE = Column("State", _get_state, json_path=".status.conditions[-1:].type")


def _build_scale(framework: V1Framework) -> ScalePaths | None:
    if not framework.is_scalable:
        return None
    status = f".status.replicaStatuses.{WORKER}"
    return ScalePaths(f".{framework.path}.{WORKER}.replicas", f"{status}.active", f"{status}.selector")


def _build_roles(framework: V1Framework) -> RoleGrants:
    view: dict[str, Sequence[str]] = {"": READ, "status": READ}
    edit: dict[str, Sequence[str]] = {"": WRITE}
    tenant: dict[str, Sequence[str]] = {"": ALL_VERBS}
    if framework.is_scalable:
        view["scale"], edit["scale"], tenant["scale"] = ("get",), ("patch", "update"), ("get", "patch", "update")
    return {"view": view, "edit": edit, "tenant": tenant}


def _build_kind(framework: V1Framework) -> Kind:
    definition = f"org.kubeflow.v1.{framework.kind}"
    columns = (cells.CUSTOM_AGE, _STATE) if framework is MPI else (_STATE, cells.CUSTOM_AGE)
    return Kind(
        group=GROUP,
        version=VERSION,
        kind=framework.kind,
        plural=framework.plural,
        singular=framework.singular,
        namespaced=True,
        definition=definition,
        load=partial(load, definition),
        custom=True,
        status=True,
        scale=_build_scale(framework),
        columns=(cells.NAME, *columns),
        default=partial(_default, framework),
        quotas=QuotaRules(writes_data=True),
        tenants=TenantRules(list_gangs=partial(_list_gangs, framework), reserved=RESERVED_IN_TEMPLATES),
        roles=_build_roles(framework),
        fidelity={**OBJECT, "spec": build_v1_spec(framework.name, framework.replicas_field), "status": H},
    )


KINDS = tuple(map(_build_kind, FRAMEWORKS))
