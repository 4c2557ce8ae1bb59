"""What Prometheus and Grafana read: a ServiceMonitor, the alerts and the dashboard, and the right to read metrics.

The alerts and the dashboard are files here; tools/install_files.py copies them to deploy/prometheus and deploy/grafana.
"""

from __future__ import annotations

from importlib import resources

import yaml

from trainmaster.api.meta import Object
from trainmaster.operator.install.parts import COMMON_LABELS, HERE, describe_config_map, describe_head
from trainmaster.operator.install.values import PART_OF
from trainmaster.operator.install.workload import SELECTED
from trainmaster.operator.names import NAME, describe_cluster_name
from trainmaster.operator.rights import COMPANION, METRICS_PATH, METRICS_READER
from trainmaster.operator.status_keys import SECRET
from trainmaster.operator.templating.nodes import Document, Either, MergedWith, Not, Text, Value, When

ALERTS, DASHBOARD = "alerts.yaml", "dashboard.json"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_MONITORING = "monitoring.coreos.com/v1"
_READERS = Value("metrics.readers")
_SECURE = Value("metrics.secure")


def read_file(name: str) -> str:
    return resources.files("trainmaster.operator.install").joinpath("files", name).read_text()


def describe_monitoring() -> list[Document]:
    return [
        Document("metrics-readers", When(_READERS, _describe_binding())),
        Document("service-monitor", When(Value("serviceMonitor.enabled"), _describe_monitor())),
        Document("prometheus-rule", When(Value("prometheusRule.enabled"), _describe_alerts())),
        Document("grafana-dashboard", When(Value("grafanaDashboard.enabled"), _describe_dashboard())),
    ]


def _describe_binding() -> Object:
    name = describe_cluster_name(METRICS_READER)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": describe_head(name, ""),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": _READERS,
    }


def _describe_monitor() -> Object:
    # Without a status server the certificate is made at each start.
    unknown = Either(COMPANION, Not(Value("progress.enabled")))
    ours = {"ca": {"secret": {"name": SECRET, "key": "ca.crt"}}, "serverName": Text(NAME, ".", HERE, ".svc")}
    endpoint = {
        "port": "metrics",
        "path": METRICS_PATH,
        "interval": Value("serviceMonitor.interval"),
        "scheme": When(_SECURE, "https", "http"),
        "bearerTokenFile": When(_SECURE, _TOKEN),
        "tlsConfig": When(_SECURE, When(unknown, {"insecureSkipVerify": True}, ours)),
    }
    labels = MergedWith({PART_OF: "trainmaster"}, (COMMON_LABELS, Value("serviceMonitor.labels")))
    spec = {"selector": {"matchLabels": SELECTED}, "endpoints": [endpoint]}
    head = {**describe_head(NAME), "labels": labels}
    return {"apiVersion": _MONITORING, "kind": "ServiceMonitor", "metadata": head, "spec": spec}


def _describe_alerts() -> Object:
    labels = MergedWith({PART_OF: "trainmaster"}, (COMMON_LABELS, Value("prometheusRule.labels")))
    head = {**describe_head("trainmaster"), "labels": labels}
    spec = yaml.safe_load(read_file(ALERTS))
    return {"apiVersion": _MONITORING, "kind": "PrometheusRule", "metadata": head, "spec": spec}


def _describe_dashboard() -> Object:
    annotations = Value("grafanaDashboard.annotations")
    labels = MergedWith({PART_OF: "trainmaster"}, (COMMON_LABELS, Value("grafanaDashboard.labels")))
    dashboard = describe_config_map("trainmaster-dashboard", {"trainmaster.json": read_file(DASHBOARD)})
    head = {**dashboard["metadata"], "labels": labels, "annotations": When(annotations, annotations)}
    return {**dashboard, "metadata": head}
