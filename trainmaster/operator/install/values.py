"""Everything that an installation can be told: the values of the chart, of `trainmaster operator install` and of
`--print-manifests --values`.

The groups are frozen dataclasses; a field's docstring is its documentation. `schema` builds values.schema.json from
them, and `tools/install_files.py` the chart's values.yaml and docs/values.md. A field `v1_jobs` is the value `v1Jobs`.
Names are those of Kubeflow Trainer's chart where they mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from trainmaster.api.lifecycle.policy import MOST_SECONDS
from trainmaster.jobs.models.v1jobs import MODELS

PART_OF = "app.kubernetes.io/part-of"
NAME_LABEL = "app.kubernetes.io/name"
VERSION_LABEL = "app.kubernetes.io/version"
CHECKSUM = "trainmaster.dev/settings-checksum"
KINDS = tuple(model.framework.singular for model in MODELS)


@dataclass(frozen=True, slots=True)
class ValueRule:
    """What a value has to be, beyond its type."""

    minimum: int | None = None
    maximum: int | None = None
    pattern: str = ""
    """Of a text, or of the elements of a list."""
    words: tuple[str, ...] = ()
    """The elements that a list may have."""
    meaning: str = ""
    """What it has to be, in words."""
    reserved: tuple[str, ...] = ()
    """Keys that a mapping may not have, because they are set already."""
    group: str = ""
    """A mapping whose keys are settings of this group."""
    least: int = 0
    """Elements that a list must have."""


Labels = Annotated[Mapping[str, str], ValueRule(reserved=(NAME_LABEL, PART_OF, VERSION_LABEL))]
NAMESPACE_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
AMOUNT = r"^[0-9]+(\.[0-9]+)?([kMGTP]|[KMGTP]i)?$"
IMAGE_PART = r"^[A-Za-z0-9][-._/:@A-Za-z0-9]*$"
Seconds = Annotated[int | None, ValueRule(0, MOST_SECONDS)]
Port = Annotated[int, ValueRule(1, 65535)]
Objects = tuple[Mapping[str, object], ...]
Fields = Mapping[str, object]


def _name(meaning: str = "the name of an object of Kubernetes, or empty") -> ValueRule:
    return ValueRule(pattern=f"^$|{OBJECT_NAME}", meaning=meaning)


@dataclass(frozen=True, slots=True)
class ImageValues:
    """The image of the operator and of the REST API (docs/image.md)."""

    registry: Annotated[str, ValueRule(pattern=f"^$|{IMAGE_PART}", meaning="a registry, or empty")] = ""
    """The registry. Empty: the one that the nodes use by default."""
    repository: Annotated[str, ValueRule(pattern=IMAGE_PART, meaning="the name of an image")] = "trainmaster"
    """The name of the image in it."""
    tag: Annotated[str, ValueRule(pattern=r"^$|^[A-Za-z0-9_][-._A-Za-z0-9]{0,127}$", meaning="a tag, or empty")] = ""
    """Its tag. Empty: the version of the chart."""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes pull it."""
    pull_secrets: Objects = ()
    """Secrets with credentials for the registry: `- name: my-secret`."""


@dataclass(frozen=True, slots=True)
class LogValues:
    """The logs of the operator and of the REST API."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are written."""
    form: Literal["json", "text"] = "json"
    """One JSON object per line, or text."""


@dataclass(frozen=True, slots=True)
class CrdsValues:
    """The definitions of our kinds."""

    enabled: bool = True
    """Install and upgrade them: those of the Trainer API, and those of `v1Jobs`. They stay when the chart is
    uninstalled, because jobs would be deleted with them."""


@dataclass(frozen=True, slots=True)
class KubeflowSystemValues:
    """The namespace `kubeflow-system`, in which clients of Kubeflow Trainer look, with the retention policy."""

    create_namespace: bool = True
    """Create it if it is needed and does not exist. It stays when the chart is uninstalled."""
    public_config_map: bool = True
    """Create the ConfigMap `kubeflow-trainer-public` there, from which the Kubeflow SDK reads the version of the API,
    readable by all authenticated users. Not for a companion."""


@dataclass(frozen=True, slots=True)
class ManagerValues:
    """The operator's Deployment, `trainmaster-operator`."""

    replicas: Annotated[int, ValueRule(0, 100)] = 2
    """How many. One of them leads; all of them answer webhooks and take progress reports."""
    config: Annotated[Fields, ValueRule(group="operator")] = field(default_factory=dict)
    """Settings of the group `operator` that have no value of their own here (docs/settings.md), for example
    `workers: 4`."""
    labels: Labels = field(default_factory=dict)
    """More labels of its Pods."""
    pod_annotations: Annotated[Mapping[str, str], ValueRule(reserved=(CHECKSUM,))] = field(default_factory=dict)
    """Annotations of its Pods."""
    resources: Fields = field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    )
    """What its container requests, and may use (docs/operator.md#cost)."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes on which it runs."""
    affinity: Fields = field(default_factory=dict)
    """Affinity of its Pods."""
    tolerations: Objects = ()
    """Tolerations of its Pods."""
    env: Objects = ()
    """Variables of its container, for example a proxy."""
    env_from: Objects = ()
    """Where more variables come from."""
    volumes: Objects = ()
    """More volumes of its Pods."""
    volume_mounts: Objects = ()
    """Where its container mounts them."""


@dataclass(frozen=True, slots=True)
class PodDisruptionBudgetValues:
    """How many of the operator's Pods may be missing while nodes are drained."""

    enabled: bool = True
    """Create a PodDisruptionBudget."""
    max_unavailable: Annotated[int | None, ValueRule(1, 100)] = 1
    """At most so many are missing."""
    min_available: Annotated[int | None, ValueRule(1, 100)] = None
    """At least so many are there. Set `maxUnavailable` to null with it."""


@dataclass(frozen=True, slots=True)
class CertManagerValues:
    """A certificate of cert-manager for the webhooks."""

    enabled: bool = False
    """Let cert-manager make the certificate of the webhooks and set `caBundle`. false: the operator makes its own."""
    issuer_name: Annotated[str, _name()] = ""
    """The issuer. Empty: a self-signed one is created."""
    issuer_kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    """The kind of the issuer that `issuerName` names."""


@dataclass(frozen=True, slots=True)
class WebhookValues:
    """The admission webhooks (docs/operator.md#admission). A companion has none."""

    enabled: bool = True
    """Check TrainJobs and runtimes when they are written."""
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """While no operator answers: `Fail` refuses new jobs, `Ignore` lets them in unchecked."""
    timeout_seconds: Annotated[int, ValueRule(1, 30)] = 5
    """How long an API server waits for an answer."""
    cert_manager: CertManagerValues = field(default_factory=CertManagerValues)
    """A certificate of cert-manager for the webhooks."""


@dataclass(frozen=True, slots=True)
class ProgressValues:
    """Progress reports of training programs (docs/progress.md)."""

    enabled: bool = True
    """Give Pods an address to report progress to. A companion takes none."""


@dataclass(frozen=True, slots=True)
class MetricsValues:
    """`/metrics` on port 8443 (docs/metrics.md)."""

    secure: bool = True
    """HTTPS, for callers whose token may read metrics. false: plain HTTP, for whoever reaches the port."""
    readers: Objects = ()
    """Subjects of a ClusterRoleBinding that may read metrics, such as the service account of Prometheus:
    `- {kind: ServiceAccount, name: prometheus-k8s, namespace: monitoring}`."""


@dataclass(frozen=True, slots=True)
class ServiceMonitorValues:
    """A ServiceMonitor for the Prometheus operator, whose kinds must be installed."""

    enabled: bool = False
    """Create it."""
    labels: Labels = field(default_factory=dict)
    """Labels by which your Prometheus selects it."""
    interval: Annotated[str, ValueRule(pattern=r"^[0-9]+(s|m)$", meaning="a time such as 30s")] = "30s"
    """How often metrics are read."""


@dataclass(frozen=True, slots=True)
class PrometheusRuleValues:
    """The alerts of deploy/prometheus/rules.yaml as a PrometheusRule, for the Prometheus operator."""

    enabled: bool = False
    """Create it."""
    labels: Labels = field(default_factory=dict)
    """Labels by which your Prometheus selects it."""


@dataclass(frozen=True, slots=True)
class GrafanaDashboardValues:
    """The dashboard of deploy/grafana as a ConfigMap, for Grafana's sidecar."""

    enabled: bool = False
    """Create it."""
    labels: Labels = field(default_factory=lambda: {"grafana_dashboard": "1"})
    """Labels by which the sidecar finds it."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Its annotations, for example the folder."""


@dataclass(frozen=True, slots=True)
class NetworkPolicyValues:
    """Who reaches the ports of the operator and of the REST API, if the network plugin enforces policies."""

    enabled: bool = False
    """Create NetworkPolicies: progress reports come from Pods of JobSets, webhooks and probes from anywhere (API
    servers and kubelets have no labels), metrics from `metricsFrom`."""
    metrics_from: Objects = ()
    """Peers of a NetworkPolicy that may read metrics, for example
    `- namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}`. Empty: nobody."""


@dataclass(frozen=True, slots=True)
class PersistenceValues:
    """Where the archive of records is kept."""

    enabled: bool = True
    """On a PersistentVolumeClaim. false: in the Pod, so that records are lost with it."""
    existing_claim: Annotated[str, _name()] = ""
    """A claim that exists. Empty: `trainmaster-history` is created, and stays when the chart is uninstalled."""
    size: Annotated[str, ValueRule(pattern=AMOUNT, meaning="an amount such as 10Gi")] = "10Gi"
    """Size of the created claim."""
    storage_class_name: Annotated[str, _name()] = ""
    """Its storage class. Empty: the default one."""
    access_modes: Annotated[
        tuple[str, ...], ValueRule(words=("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"), least=1)
    ] = ("ReadWriteOnce",)
    """Access modes of the claim. Several replicas on several nodes need ReadWriteMany."""


@dataclass(frozen=True, slots=True)
class RecordsValues:
    """Records through the API servers of the cluster (docs/history.md#on-a-cluster)."""

    enabled: bool = True
    """Serve them as `jobrecords.records.trainmaster.dev` to whoever may read the jobs. While no operator answers,
    Kubernetes does not finish the deletion of namespaces (docs/operator.md#records)."""


@dataclass(frozen=True, slots=True)
class HistoryValues:
    """Records of jobs, with their logs and events, that outlive them (docs/history.md)."""

    enabled: bool = False
    """Keep records. A job is deleted after its time only when its record is stored."""
    directory: Annotated[str, ValueRule(pattern=r"^/[-._/A-Za-z0-9]+$", meaning="an absolute path")] = (
        "/var/lib/trainmaster/history"
    )
    """Where the archive is mounted in the operator's Pod."""
    records: RecordsValues = field(default_factory=RecordsValues)
    """Records through the API servers of the cluster."""
    persistence: PersistenceValues = field(default_factory=PersistenceValues)
    """Where the archive is kept."""


@dataclass(frozen=True, slots=True)
class RestValues:
    """The REST API before this cluster (docs/rest.md#on-a-cluster), with its roles and those of tenants."""

    enabled: bool = False
    """Install it."""
    replicas: Annotated[int, ValueRule(0, 100)] = 2
    """How many. Each has its own rate limits."""
    tls_secret_name: Annotated[str, ValueRule(pattern=OBJECT_NAME, meaning="a Secret's name")] = "trainmaster-rest-tls"
    """The Secret with its certificate and key: `kubectl create secret tls`."""
    env: Objects = ()
    """Variables of its container: settings of the groups `rest` and `limits`, for example
    `- {name: TRAINMASTER_REST_MAX_NODES, value: "500"}`."""
    resources: Fields = field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    )
    """What its container requests, and may use."""


@dataclass(frozen=True, slots=True)
class Values:
    """All values."""

    image: ImageValues = field(default_factory=ImageValues)
    """The image of the operator and of the REST API."""
    common_labels: Labels = field(default_factory=dict)
    """Labels of all objects."""
    companion: bool = False
    """Leave jobs to Kubeflow Trainer's manager and training-operator, and only do retention
    (docs/operator.md#retention-also-alongside-kubeflow-trainer-and-training-operator)."""
    watch_namespaces: Annotated[tuple[str, ...], ValueRule(pattern=NAMESPACE_NAME, meaning="a namespace's name")] = ()
    """The only namespaces with jobs; they must exist. The operator's rights are then Roles in these namespaces. Empty:
    all."""
    instance: Annotated[str, ValueRule(pattern=r"^$|^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$", meaning="a short name")] = ""
    """One of several installations on a cluster, each in a namespace of its own and for other `watchNamespaces`
    (docs/scale.md#several-operators): the names of its ClusterRoles and webhook configurations end with it."""
    v1_jobs: Annotated[tuple[str, ...], ValueRule(words=("all", *KINDS))] = ()
    """Also run these kinds of training-operator, with their definitions and webhooks: `[all]`, or some of pytorchjob,
    tfjob, mpijob, xgboostjob, paddlejob, jaxjob, mxjob."""
    gang_scheduler_name: Annotated[str, _name("the name of a scheduler, or empty")] = ""
    """Create a PodGroup for each of these jobs: `volcano`, or the name of a scheduler with the coscheduling plugin."""
    job_retention_policy: Literal["", "delete_on_completion", "retain"] = ""
    """What happens to finished jobs for which neither they nor their runtimes say it: `delete_on_completion` deletes
    them at once, or after `ttlSecondsAfterFinished`; `retain` keeps them. These five values are written to the
    ConfigMap `trainmaster-policy` (docs/lifecycle.md); if none is set, it is left alone."""
    ttl_seconds_after_finished: Seconds = None
    """How many seconds finished jobs are kept for which neither they nor their runtimes say it."""
    ttl_enforced: bool = False
    """A job may set a shorter TTL, but not a longer one."""
    successful_jobs_history_limit: Annotated[int | None, ValueRule(0, MOST_SECONDS)] = None
    """How many Complete jobs are kept in each namespace; the newest are."""
    failed_jobs_history_limit: Annotated[int | None, ValueRule(0, MOST_SECONDS)] = None
    """The same for Failed ones."""
    log: LogValues = field(default_factory=LogValues)
    """The logs of the operator and of the REST API."""
    crds: CrdsValues = field(default_factory=CrdsValues)
    """The definitions of our kinds."""
    kubeflow_system: KubeflowSystemValues = field(default_factory=KubeflowSystemValues)
    """The namespace `kubeflow-system`."""
    manager: ManagerValues = field(default_factory=ManagerValues)
    """The operator's Deployment."""
    priority_class_name: Annotated[str, _name("the name of a priority class, or empty")] = ""
    """The priority class of the operator's Pods and of the REST API's."""
    topology_spread_constraints: Objects = ()
    """How the operator's Pods are spread over nodes and zones."""
    pod_disruption_budget: PodDisruptionBudgetValues = field(default_factory=PodDisruptionBudgetValues)
    """How many of the operator's Pods may be missing while nodes are drained."""
    webhook: WebhookValues = field(default_factory=WebhookValues)
    """The admission webhooks."""
    progress: ProgressValues = field(default_factory=ProgressValues)
    """Progress reports of training programs."""
    metrics: MetricsValues = field(default_factory=MetricsValues)
    """`/metrics` on port 8443."""
    service_monitor: ServiceMonitorValues = field(default_factory=ServiceMonitorValues)
    """A ServiceMonitor for the Prometheus operator."""
    prometheus_rule: PrometheusRuleValues = field(default_factory=PrometheusRuleValues)
    """The alerts, for the Prometheus operator."""
    grafana_dashboard: GrafanaDashboardValues = field(default_factory=GrafanaDashboardValues)
    """The dashboard, for Grafana's sidecar."""
    network_policy: NetworkPolicyValues = field(default_factory=NetworkPolicyValues)
    """Who reaches which ports."""
    history: HistoryValues = field(default_factory=HistoryValues)
    """Records of jobs that outlive them."""
    rest: RestValues = field(default_factory=RestValues)
    """The REST API before this cluster."""
