"""The checks of `trainmaster doctor` for a cluster: what the operator there needs, and whether it works.

One function each, with a client of whoever asks; they change nothing. What may not be looked at is a note, so that
somebody with few rights sees the rest. To add a check, write a function and add it to `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.api.meta import GVR, Fields
from trainmaster.api.reading import list_items, read_annotations, read_spec, read_status, read_text
from trainmaster.api.resources import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_TRAINING_RUNTIMES,
    DEPLOYMENTS,
    EVENTS,
    JOB_SETS,
    LEASES,
    ROLES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from trainmaster.api.status import NotFound, StatusError
from trainmaster.app.doctor import Diagnosis
from trainmaster.client.contract import Client, ListOptions, WriteOptions
from trainmaster.engine.lease import VERSION
from trainmaster.kit.clock import Clock, parse_time
from trainmaster.operator.definitions import check_definitions
from trainmaster.operator.monitoring.telling import COMPONENT
from trainmaster.operator.monitoring.troubles import PRINT, OperatorTrouble, explain_missing, join
from trainmaster.operator.names import NAME
from trainmaster.operator.records.installation import NAME as RECORDS
from trainmaster.operator.rights import COMPANION_LEASE_NAME, LEASE_NAME, Duties, list_job_rules

_LEASES = (LEASE_NAME, COMPANION_LEASE_NAME)
_KINDS = (TRAIN_JOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)
_REVIEWS = GVR("authorization.k8s.io", "v1", "subjectaccessreviews")
_TRAINER_HOOKS = "validator.trainer.kubeflow.org"
_TRAINER_IMAGE = "trainer-controller-manager"
_FAILED_CALL = "failed calling webhook"
_SILENT_SECONDS = 60.0
"""Longer than a Lease lasts, because the clocks of two machines are compared."""
_RECENT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    client: Client
    namespace: str
    """The operator's own."""
    clock: Clock


Check = Callable[[ClusterFacts], Awaitable[list[Diagnosis]]]


async def examine(facts: ClusterFacts) -> list[Diagnosis]:
    found = []
    for name, check in CHECKS.items():
        try:
            found += await check(facts)
        except StatusError as error:
            if error.code != 403:
                raise
            found.append(Diagnosis(name, "note", f"you may not look: {error.message}"))
    return found


def _diagnose(check: str, trouble: OperatorTrouble) -> Diagnosis:
    """The sentence of a trouble ends with what to do."""
    seen, _, advice = trouble.text.partition(": ")
    return Diagnosis(check, "problem", seen, advice)


async def check_kinds(facts: ClusterFacts) -> list[Diagnosis]:
    missing = [gvr for gvr in (JOB_SETS, *_KINDS) if not await is_served(facts.client, gvr)]
    if missing:
        return [_diagnose("kinds", trouble) for trouble in explain_missing(missing)]
    return [Diagnosis("kinds", "ok", f"{JOB_SETS.qualified}, {', '.join(gvr.plural for gvr in _KINDS)}")]


async def is_served(client: Client, gvr: GVR) -> bool:
    try:
        await client.list(gvr, options=ListOptions(limit=1))
    except NotFound:
        return False
    return True


async def check_fields(facts: ClusterFacts) -> list[Diagnosis]:
    troubles = await check_definitions(facts.client, _KINDS)
    return [_diagnose("definitions", trouble) for trouble in troubles] or [Diagnosis("definitions", "ok", "current")]


async def check_leaders(facts: ClusterFacts) -> list[Diagnosis]:
    found = [lease for lease in (await facts.client.list(LEASES)).items if lease["metadata"]["name"] in _LEASES]
    now = facts.clock.now()
    leading = [lease for lease in found if _is_live(lease, now)]
    if not leading:
        where = join(lease["metadata"]["namespace"] for lease in found)
        seen = f"none leads in {where}" if found else "none has ever led on this cluster"
        advice = (
            f"`kubectl describe pods -n {facts.namespace} -l app.kubernetes.io/name={NAME}` shows why, or start one"
        )
        return [Diagnosis("operator", "problem", seen, advice)]
    lines = [Diagnosis("operator", "ok", _describe_leader(lease)) for lease in leading]
    places = [lease["metadata"]["namespace"] for lease in leading if lease["metadata"]["name"] == LEASE_NAME]
    if len(places) > 1:
        seen = f"there are operators in {join(sorted(places))}"
        advice = "unless they have different namespaces (--namespace), they undo each other's work: remove one"
        lines.append(Diagnosis("operators", "problem", seen, advice))
    return lines


def _is_live(lease: Fields, now: datetime) -> bool:
    spec = read_spec(lease)
    renewed = read_text(spec, "renewTime")
    is_recent = bool(renewed) and (now - parse_time(renewed)).total_seconds() < _SILENT_SECONDS
    return is_recent and bool(read_text(spec, "holderIdentity"))


def _describe_leader(lease: Fields) -> str:
    meta, version = lease["metadata"], read_annotations(lease).get(VERSION, "")
    what = "the companion" if meta["name"] == COMPANION_LEASE_NAME else "the operator"
    holder = read_text(read_spec(lease), "holderIdentity")
    return f"{holder} leads, {what} in {meta['namespace']}" + (f", version {version}" if version else "")


async def check_others(facts: ClusterFacts) -> list[Diagnosis]:
    """Kubeflow Trainer's manager, and what is left of it."""
    if not await _find(facts.client, LEASES, LEASE_NAME, facts.namespace):
        return []
    if managers := await list_trainers(facts.client):
        return [Diagnosis("others", "problem", *explain_trainers(managers))]
    if await _find(facts.client, VALIDATING_WEBHOOK_CONFIGURATIONS, _TRAINER_HOOKS):
        seen = "the webhooks of Kubeflow Trainer are still configured, and its manager is gone"
        advice = "nobody answers them, so no TrainJob can be created: `kubectl delete validatingwebhookconfiguration"
        return [Diagnosis("others", "problem", seen, f"{advice} {_TRAINER_HOOKS}`")]
    return [Diagnosis("others", "ok", "no other controller for TrainJobs")]


async def list_trainers(client: Client) -> list[str]:
    """Deployments of Kubeflow Trainer's manager that are not scaled down, as NAMESPACE/NAME."""
    deployments = (await client.list(DEPLOYMENTS)).items
    return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in deployments if _is_trainer(one)]


def explain_trainers(managers: Sequence[str]) -> tuple[str, str]:
    """What is wrong with them beside an operator, and what to do."""
    seen = f"Kubeflow Trainer's manager ({join(managers)}) runs the same TrainJobs as this operator"
    return seen, "two controllers undo each other's work: remove it, or run this operator as a companion (--companion)"


def _is_trainer(deployment: Fields) -> bool:
    spec = read_spec(deployment)
    containers = list_items(spec, "template", "spec", "containers")
    return spec.get("replicas") != 0 and any(_TRAINER_IMAGE in read_text(one, "image") for one in containers)


async def _find(client: Client, gvr: GVR, name: str, namespace: str = "") -> Fields | None:
    try:
        return await client.get(gvr, name, namespace)
    except NotFound:
        return None


async def check_webhooks(facts: ClusterFacts) -> list[Diagnosis]:
    """Has the API server call them, with a TrainJob that is not stored."""
    if not await _find(facts.client, VALIDATING_WEBHOOK_CONFIGURATIONS, NAME):
        seen = "none are configured: mistakes in jobs are seen only when they wait"
        return [Diagnosis("webhooks", "note", seen, f"apply the output of `{PRINT} --webhooks`")]
    probe = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "metadata": {"generateName": "doctor-"},
        "spec": {"runtimeRef": {"name": "doctor"}, "suspend": True},
    }
    try:
        await facts.client.create(TRAIN_JOBS, probe, "default", options=WriteOptions(dry_run=True))
    except NotFound:
        return []
    except StatusError as error:
        if _FAILED_CALL in error.message:
            advice = (
                "jobs and runtimes cannot be created: if a certificate is the reason, `caBundle` is wrong and the "
                "leader or cert-manager should write it; else see that the Service has Pods that are ready"
            )
            return [Diagnosis("webhooks", "problem", error.message, advice)]
        if error.code == 403 and "denied the request" not in error.message:
            raise
    return [Diagnosis("webhooks", "ok", "the API server reaches them")]


async def check_records(facts: ClusterFacts) -> list[Diagnosis]:
    """Whether API servers reach the operator's records. If not, they do not know all kinds."""
    service = await _find(facts.client, API_SERVICES, RECORDS)
    if service is None:
        return []
    away = [one for one in list_items(read_status(service), "conditions") if one["type"] == "Available"]
    if away and away[0]["status"] == "True":
        return [Diagnosis("records", "ok", "the API server reaches them")]
    seen = f"the API server does not reach them: {read_text(away[0], 'message') if away else 'it has not tried yet'}"
    advice = (
        "until it does, the deletion of namespaces is not finished; start the operator with its --history, or "
        f"`kubectl delete apiservice {RECORDS}`"
    )
    return [Diagnosis("records", "problem", seen, advice)]


async def check_rights(facts: ClusterFacts) -> list[Diagnosis]:
    """Of the service account of the printed manifests."""
    duties = Duties(own_namespace=facts.namespace)
    if not await _find(facts.client, CLUSTER_ROLE_BINDINGS, NAME):
        return [Diagnosis("rights", "note", f"there is no ClusterRoleBinding {NAME}", f"apply the output of `{PRINT}`")]
    roles = [role for role in (await facts.client.list(ROLES)).items if role["metadata"]["name"] == f"{NAME}-jobs"]
    places = [role["metadata"]["namespace"] for role in roles] or [""]
    lacking = [
        f"{verb} {resource}{f' in {place}' if place else ''}"
        for place in places
        for rule in list_job_rules(duties)
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not await _may(facts.client, duties.user, verb, rule["apiGroups"][0], resource, place)
    ]
    if lacking:
        seen = f"{duties.user} may not {join(lacking)}"
        return [Diagnosis("rights", "problem", seen, f"apply the output of `{PRINT}`, with the operator's flags")]
    return [Diagnosis("rights", "ok", f"{duties.user} may do what it needs")]


async def _may(client: Client, user: str, verb: str, group: str, resource: str, place: str) -> bool:
    name, _, subresource = resource.partition("/")
    asked: Mapping[str, str] = {"namespace": place, "verb": verb, "group": group, "resource": name}
    spec = {"user": user, "resourceAttributes": {**asked, "subresource": subresource}}
    review = {"apiVersion": _REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
    return bool((await client.create(_REVIEWS, review))["status"]["allowed"])


async def check_events(facts: ClusterFacts) -> list[Diagnosis]:
    """What operators say about themselves."""
    now, found = facts.clock.now(), {}
    for event in (await facts.client.list(EVENTS, facts.namespace)).items:
        moment = event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
        seconds = (now - parse_time(moment)).total_seconds()
        is_ours = read_text(event, "reportingComponent") == COMPONENT
        if is_ours and event.get("type") == "Warning" and seconds < _RECENT_SECONDS:
            what = event["involvedObject"]
            if what.get("kind") in ("Pod", "Lease"):
                found[event["reason"]] = f"{event['message']} ({seconds:.0f} s ago)"
    return [Diagnosis(f"event {reason}", "note", text) for reason, text in found.items()]


CHECKS: Mapping[str, Check] = {
    "kinds": check_kinds,
    "definitions": check_fields,
    "operator": check_leaders,
    "others": check_others,
    "webhooks": check_webhooks,
    "records": check_records,
    "rights": check_rights,
    "events": check_events,
}
