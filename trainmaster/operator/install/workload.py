"""The operator in Pods: its settings, Deployment, Service, archive, and what protects them."""

from __future__ import annotations

from trainmaster.api.labels import JOBSET_NAME
from trainmaster.api.meta import Object
from trainmaster.operator.addresses import HEALTH_PORT, METRICS_PORT, PROGRESS_PORT
from trainmaster.operator.install.parts import (
    COMMON_LABELS,
    HERE,
    KEEP,
    describe_config_map,
    describe_head,
    describe_pod,
)
from trainmaster.operator.install.values import CHECKSUM, NAME_LABEL, PART_OF
from trainmaster.operator.names import INSTANCE, NAME
from trainmaster.operator.records.installation import PORT as RECORDS_PORT
from trainmaster.operator.records.installation import build_service_port
from trainmaster.operator.rights import COMPANION, HISTORY, LISTED, RECORDS, V1_JOBS
from trainmaster.operator.templating.nodes import (
    All,
    Checksum,
    Document,
    Fallback,
    Given,
    Has,
    MergedWith,
    NamedPart,
    Not,
    Toml,
    Tree,
    Value,
    When,
)
from trainmaster.operator.webhooks.configurations import PORT as WEBHOOK_PORT

SELECTED = {NAME_LABEL: NAME}
"""The label of the operator's Pods."""
WEBHOOKS = All(Value("webhook.enabled"), Not(COMPANION))
PROGRESS = All(Value("progress.enabled"), Not(COMPANION))
INJECTED = Value("webhook.certManager.enabled")
WEBHOOK_SECRET = "trainmaster-webhook-cert"
CLAIM = "trainmaster-history"
_SETTINGS_DIRECTORY, _SETTINGS_FILE = "/etc/trainmaster", "operator.toml"
_WEBHOOK_DIRECTORY = "/etc/trainmaster-webhook"
_PERSISTENCE = "history.persistence"
_KEPT = Value(f"{_PERSISTENCE}.enabled")
_ON_ONE_NODE = All(HISTORY, _KEPT, Not(Has(f"{_PERSISTENCE}.accessModes", "ReadWriteMany")))
_EXISTING = Value(f"{_PERSISTENCE}.existingClaim")
_BUDGET = "podDisruptionBudget"

SETTINGS = NamedPart(
    "trainmaster.settings",
    Toml(
        {
            "log": {"level": Value("log.level"), "form": Value("log.form")},
            "operator": {
                "lease_namespace": HERE,
                "companion": COMPANION,
                "namespaces": LISTED,
                "instance": INSTANCE,
                "v1_jobs": V1_JOBS,
                "gang_scheduler_name": Value("gangSchedulerName"),
                "history": When(HISTORY, Value("history.directory")),
                "records_port": When(All(HISTORY, Not(Value("history.records.enabled"))), 0),
                "progress": Value("progress.enabled"),
                "webhooks": Value("webhook.enabled"),
                "webhook_cert_dir": When(INJECTED, _WEBHOOK_DIRECTORY),
                "metrics_secure": Value("metrics.secure"),
            },
        },
        Value("manager.config"),
    ),
)


def describe_settings() -> list[Document]:
    return [Document("settings", describe_config_map(NAME, {_SETTINGS_FILE: SETTINGS}))]


def describe_workload() -> list[Document]:
    return [
        Document("history", _describe_claim()),
        Document("service", describe_service()),
        Document("deployment", _describe_deployment()),
        Document("pod-disruption-budget", _describe_budget()),
    ]


def describe_service() -> Object:
    """Selects the operator's Pods by a label that they must have."""
    progress = {"name": "progress", "port": PROGRESS_PORT, "targetPort": PROGRESS_PORT, "protocol": "TCP"}
    webhook = {"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"}
    metrics = {"name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP"}
    head = describe_head(NAME)
    spec = {
        "selector": SELECTED,
        "ports": [metrics, When(Not(COMPANION), [progress, webhook]), When(RECORDS, build_service_port())],
    }
    labels = MergedWith({PART_OF: "trainmaster", **SELECTED}, (COMMON_LABELS,))
    return {"apiVersion": "v1", "kind": "Service", "metadata": {**head, "labels": labels}, "spec": spec}


def _describe_deployment() -> Object:
    pod: Object = {
        "nodeSelector": When(Value("manager.nodeSelector"), Value("manager.nodeSelector")),
        "affinity": When(Value("manager.affinity"), Value("manager.affinity")),
        "tolerations": When(Value("manager.tolerations"), Value("manager.tolerations")),
        "topologySpreadConstraints": When(Value("topologySpreadConstraints"), Value("topologySpreadConstraints")),
        # SIGTERM gives the lease back within a second; then events are written and ports drained.
        "terminationGracePeriodSeconds": 30,
        **describe_pod(NAME, _describe_container(), _list_volumes()),
    }
    labels = MergedWith({PART_OF: "trainmaster", **SELECTED}, (COMMON_LABELS, Value("manager.labels")))
    annotations = MergedWith({CHECKSUM: Checksum(SETTINGS)}, (Value("manager.podAnnotations"),))
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": describe_head(NAME),
        "spec": {
            "replicas": Value("manager.replicas"),
            # Two Pods on different nodes cannot mount the archive.
            "strategy": When(_ON_ONE_NODE, {"type": "Recreate"}, rolling),
            "selector": {"matchLabels": SELECTED},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }


def _describe_container() -> Object:
    return {
        "name": "operator",
        "args": ["operator", "--config", f"{_SETTINGS_DIRECTORY}/{_SETTINGS_FILE}"],
        "env": When(Value("manager.env"), Value("manager.env")),
        "envFrom": When(Value("manager.envFrom"), Value("manager.envFrom")),
        "ports": [
            _describe_port("health", HEALTH_PORT),
            _describe_port("metrics", METRICS_PORT),
            When(WEBHOOKS, _describe_port("webhook", WEBHOOK_PORT)),
            When(PROGRESS, _describe_port("progress", PROGRESS_PORT)),
            When(RECORDS, _describe_port("records", RECORDS_PORT)),
        ],
        # The process answers from its very beginning; it is ready when its caches are.
        "startupProbe": _describe_probe("/healthz", 2, 30),
        "livenessProbe": _describe_probe("/healthz", 20, 3),
        "readinessProbe": _describe_probe("/readyz", 5, 2),
        "resources": When(Value("manager.resources"), Value("manager.resources")),
        "volumeMounts": [
            {"name": "settings", "mountPath": _SETTINGS_DIRECTORY, "readOnly": True},
            When(INJECTED, {"name": "webhook-certificate", "mountPath": _WEBHOOK_DIRECTORY, "readOnly": True}),
            When(HISTORY, {"name": "history", "mountPath": Value("history.directory")}),
            Value("manager.volumeMounts"),
        ],
    }


def _describe_port(name: str, number: int) -> Object:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _describe_probe(path: str, seconds: int, failures: int) -> Object:
    request = {"path": path, "port": "health"}
    return {"httpGet": request, "periodSeconds": seconds, "timeoutSeconds": 5, "failureThreshold": failures}


def _list_volumes() -> list[Tree]:
    claim = {"name": "history", "persistentVolumeClaim": {"claimName": Fallback(_EXISTING, CLAIM)}}
    return [
        {"name": "settings", "configMap": {"name": NAME}},
        When(INJECTED, {"name": "webhook-certificate", "secret": {"secretName": WEBHOOK_SECRET}}),
        When(HISTORY, When(_KEPT, claim, {"name": "history", "emptyDir": {}})),
        Value("manager.volumes"),
    ]


def _describe_claim() -> When:
    spec = {
        "accessModes": Value(f"{_PERSISTENCE}.accessModes"),
        "storageClassName": When(Value(f"{_PERSISTENCE}.storageClassName"), Value(f"{_PERSISTENCE}.storageClassName")),
        "resources": {"requests": {"storage": Value(f"{_PERSISTENCE}.size")}},
    }
    head = describe_head(CLAIM, annotations=KEEP)
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": head, "spec": spec}
    return When(All(HISTORY, _KEPT, Not(_EXISTING)), claim)


def _describe_budget() -> When:
    spec = {
        name: When(Given(f"{_BUDGET}.{name}"), Value(f"{_BUDGET}.{name}"))
        for name in ("minAvailable", "maxUnavailable")
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": describe_head(NAME),
        "spec": {"selector": {"matchLabels": SELECTED}, **spec},
    }
    return When(Value(f"{_BUDGET}.enabled"), budget)


def describe_network_policy() -> Document:
    jobs = {
        "namespaceSelector": When(
            LISTED,
            {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": LISTED}]},
            {},
        ),
        "podSelector": {"matchExpressions": [{"key": JOBSET_NAME, "operator": "Exists"}]},
    }
    metrics_from = Value("networkPolicy.metricsFrom")
    spec = {
        "podSelector": {"matchLabels": SELECTED},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": _open(HEALTH_PORT)},
            # API servers have no label.
            When(WEBHOOKS, {"ports": _open(WEBHOOK_PORT)}),
            When(RECORDS, {"ports": _open(RECORDS_PORT)}),
            When(PROGRESS, {"ports": _open(PROGRESS_PORT), "from": [jobs]}),
            When(metrics_from, {"ports": _open(METRICS_PORT), "from": metrics_from}),
        ],
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": describe_head(NAME),
        "spec": spec,
    }
    return Document("network-policy", When(Value("networkPolicy.enabled"), policy))


def _open(port: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port}]
