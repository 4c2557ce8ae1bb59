"""What the REST API needs from its host (`app` for a home, `trainmaster rest` alone).

`Backend` is passed to every route through `trainmaster/rest/context.py`. Independent of HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainmaster.api.meta import Fields, Object
from trainmaster.client.contract import Client
from trainmaster.edge.addresses import TrustedProxies
from trainmaster.history.curves.usage import UsagePoint
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import PodMeasurement
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.rest.audit_trail import Write
from trainmaster.rest.callers import Callers
from trainmaster.rest.logins.logins import Logins
from trainmaster.rest.rates import Rates
from trainmaster.rest.services.creation.guide_jobs import GuideJobs
from trainmaster.rest.services.creation.new_jobs import NewJobs
from trainmaster.rest.services.files.downloads import Downloads
from trainmaster.rest.services.files.job_files import JobFiles
from trainmaster.rest.services.history import HistoryService
from trainmaster.rest.services.job_reader import JobReader
from trainmaster.rest.services.live.sources import Sources
from trainmaster.rest.services.log_windows import LogWindows
from trainmaster.rest.services.streams import Streams
from trainmaster.rest.services.tenants import TenantService


@dataclass(frozen=True, slots=True)
class RestLimits:
    body_bytes: int = 2 * 1024 * 1024
    """Largest request body; a ConfigMap holds 1 MiB, so no usable training code is larger."""
    body_seconds: float = 30.0
    """Longest pause in seconds while a body arrives."""
    stranger_body_bytes: int = 80 * 1024
    """The largest body for paths that need no token."""
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    """Proxies whose X-Forwarded-For is trusted."""


ListSettings = Callable[[], list[Object]]
"""The settings in effect with their sources, without secrets (`models.diagnosis`)."""
Diagnose = Callable[[Client], Awaitable[list[Object]]]
"""What `trainmaster doctor` finds; on a cluster with the rights of the caller."""


async def diagnose_nothing(_: Client) -> list[Object]:
    """The doctor of a host that has none."""
    return []


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What clients are told about the host; the settings and the doctor's findings only administrators."""

    mode: Literal["home", "cluster"] = "home"
    name: str = ""
    abilities: tuple[str, ...] = ()
    list_settings: ListSettings = list
    diagnose: Diagnose = diagnose_nothing


@dataclass(frozen=True, slots=True)
class PageRules:
    frame_ancestors: tuple[str, ...] = ()
    """Sites that may show the dashboard in a frame."""
    base_path: str = ""
    """Prefix of all paths, for proxies that keep theirs; requests without it are served too."""


Explain = Callable[[Client, str, str], Awaitable[Fields | None]]
"""(client, namespace, name) -> the result of `trainmaster explain`; None if there is no such job."""

ReadNodes = Callable[[Client], Awaitable[list[Object]]]
"""All nodes as the caller may see them (`models.machine`)."""
ReadQueue = Callable[[Client, str], Awaitable[Object]]
"""(client, namespace or "" for all) -> what waits."""


MeasurePods = Callable[[Client, TrainingJob, Sequence[Pod]], Awaitable[Mapping[str, PodMeasurement]]]
"""(client, job, its running Pods) -> what they use, by uid; Pods that are not measured are missing."""


async def measure_nothing(client: Client, job: TrainingJob, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
    return {}


def list_no_points(uid: str) -> Sequence[UsagePoint]:
    return ()


@dataclass(frozen=True, slots=True)
class UsageReads:
    measure: MeasurePods = measure_nothing
    list_pending: Callable[[str], Sequence[UsagePoint]] = list_no_points
    """By uid of a job, the newest points that are not in the archive yet."""


CheckManifests = Callable[[Client, str, str, bool], Awaitable[list[Object]]]
"""(client, namespace, text, whether to ask when jobs would start) -> the findings about each document, as those of
`trainmaster check -o json`."""


CollectEvidence = Callable[[str], Awaitable[Object | None]]
"""(uid of a job) -> the evidence of its ranks, which is kept (`history.evidence`); None if none of them runs."""


@dataclass(frozen=True, slots=True)
class EvidenceAccess:
    results: Path | None = None
    """Where it is kept; None on a cluster."""
    collect: CollectEvidence | None = None
    """None where no Pods run."""


@dataclass(frozen=True, slots=True)
class JobTools:
    """For the pages that create jobs and show their files."""

    check: CheckManifests
    files: JobFiles
    downloads: Downloads


@dataclass(frozen=True, slots=True)
class Backend:
    callers: Callers
    clock: Clock
    ids: Ids
    jobs: GuideJobs
    reader: JobReader
    tenants: TenantService
    rates: Rates
    """Request rates per caller."""
    check_ready: Callable[[], Awaitable[None]]
    """Raises StatusError while the API server does not answer."""
    history: HistoryService
    explain: Explain
    nodes: ReadNodes
    queue: ReadQueue
    streams: Streams
    sources: Sources
    """Of live data; the host runs them."""
    new_jobs: NewJobs
    logins: Logins
    log_windows: LogWindows
    tools: JobTools
    limits: RestLimits = field(default_factory=RestLimits)
    server: HostInfo = field(default_factory=HostInfo)
    audit: Write | None = None
    """Receives lines of the audit log; None if the API server writes them."""
    pages: PageRules = field(default_factory=PageRules)
    usage: UsageReads = field(default_factory=UsageReads)
    evidence: EvidenceAccess = field(default_factory=EvidenceAccess)
