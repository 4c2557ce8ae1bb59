"""How the server is set up, and what is wrong: with the host, for administrators, or with one job."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from trainmaster.jobs.cases import collect_case
from trainmaster.jobs.diagnosis import examine
from trainmaster.jobs.kinds import get_kind_name
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.diagnosis import (
    DoctorAnswer,
    DoctorFinding,
    JobDoctorAnswer,
    JobFinding,
    SettingAnswer,
    SettingsAnswer,
)
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace
from trainmaster.rest.services import jobs
from trainmaster.rest.services.namespaces import find_namespace

router = APIRouter(prefix="/api/v1", tags=["diagnosis"])


@router.get("/settings", summary="Every setting: its value, and where that comes from")
async def read_settings(caller: CallerOf, backend: BackendOf) -> SettingsAnswer:
    """For administrators. Passwords in addresses are replaced by ***."""
    await caller.check_administrator()
    return SettingsAnswer(items=[SettingAnswer(**one) for one in backend.server.list_settings()])


@router.get("/doctor", summary="What is wrong with the machine or the cluster")
async def examine_host(caller: CallerOf, backend: BackendOf) -> DoctorAnswer:
    """For administrators."""
    await caller.check_administrator()
    found = [DoctorFinding(**one) for one in await backend.server.diagnose(caller.client)]
    return DoctorAnswer(healthy=all(one.state != "problem" for one in found), checks=found)


@router.get("/jobs/{name}/doctor", summary="What keeps a job from starting, ending or being deleted")
async def examine_job(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> JobDoctorAnswer:
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    case = await collect_case(caller.client, job, backend.clock.now())
    findings = [JobFinding(**asdict(one)) for one in examine(case)]
    return JobDoctorAnswer(name=name, namespace=space, kind=get_kind_name(type(job)), findings=findings)
