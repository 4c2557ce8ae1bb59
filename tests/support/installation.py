"""Values of installations, and Helm: for tests that compare what each of the ways to install makes of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.house.tree import ROOT
from tests.support.kubectl import SHORT_LIVED
from trainmaster.api.meta import Object
from trainmaster.operator.install import build_objects, read_values
from trainmaster.operator.names import NAMESPACE

CHART = ROOT / "deploy" / "chart"
RELEASE = "trainmaster"
_KUBERNETES = "1.36.0"
"""What Helm assumes when it asks no cluster: one that was not built by its release has an old version for that."""

SETS: Mapping[str, Object] = {
    "default": {},
    "companion": {
        "companion": True,
        "history": {"enabled": True},
        "manager": {"replicas": 1},
        "ttlSecondsAfterFinished": 86400,
    },
    "v1-and-rest": {
        "v1Jobs": ["all"],
        "gangSchedulerName": "volcano",
        "rest": {"enabled": True, "env": [{"name": "TRAINMASTER_REST_MAX_NODES", "value": "500"}]},
        "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    },
    "some-v1-in-namespaces": {
        "v1Jobs": ["mpijob", "tfjob"],
        "watchNamespaces": ["team-a", "team-b"],
        "networkPolicy": {"enabled": True},
    },
    "instance": {
        "instance": "research",
        "watchNamespaces": ["team-a"],
        "crds": {"enabled": False},
        "kubeflowSystem": {"createNamespace": False, "publicConfigMap": False},
        "metrics": {"readers": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]},
    },
    "pods": {
        "image": {
            "registry": "registry.example:5000",
            "repository": "team/trainmaster",
            "tag": "v1",
            "pullPolicy": "Never",
            "pullSecrets": [{"name": "mine"}],
        },
        "commonLabels": {"team": "ml", "count": "1"},
        "manager": {
            "labels": {"team": "other"},
            "podAnnotations": {"note": "a: b"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "env": [{"name": "HTTPS_PROXY", "value": '"a" <&>'}],
            "envFrom": [{"secretRef": {"name": "proxy"}}],
            "volumes": [{"name": "more", "emptyDir": {}}],
            "volumeMounts": [{"name": "more", "mountPath": "/more"}],
            "resources": {"limits": None, "requests": {"cpu": 1}},
        },
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "trainmaster-operator"}},
            }
        ],
    },
    "settings": {
        "manager": {
            "config": {
                "workers": 4,
                "request_burst": 1000000,
                "requests_per_second": 0.5,
                "lease_renew_deadline": 8,
                "runtimes": False,
                "progress_url": 'https://a<b>&"c"\\ü',
            },
        },
        "log": {"level": "debug", "form": "text"},
    },
    "policy": {
        "jobRetentionPolicy": "delete_on_completion",
        "ttlEnforced": True,
        "successfulJobsHistoryLimit": 0,
        "failedJobsHistoryLimit": 2000000000,
    },
    "policy-in-namespaces": {
        "ttlSecondsAfterFinished": 0,
        "watchNamespaces": ["kubeflow-system"],
        "podDisruptionBudget": {"maxUnavailable": None, "minAvailable": 1},
    },
    "little": {
        "podDisruptionBudget": {"enabled": False},
        "crds": {"enabled": False},
        "webhook": {"enabled": False},
        "kubeflowSystem": {"publicConfigMap": False},
    },
    "cert-manager": {
        "webhook": {"certManager": {"enabled": True}, "failurePolicy": "Ignore", "timeoutSeconds": 10},
    },
    "issuer": {
        "webhook": {"certManager": {"enabled": True, "issuerName": "company", "issuerKind": "ClusterIssuer"}},
        "watchNamespaces": ["team-a"],
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True, "annotations": {"folder": "jobs"}},
        "metrics": {"readers": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]},
    },
    "plain-metrics": {
        "serviceMonitor": {"enabled": True},
        "metrics": {"secure": False},
        "progress": {"enabled": False},
    },
    "shared-history": {
        "history": {
            "enabled": True,
            "persistence": {"accessModes": ["ReadWriteMany"], "storageClassName": "nfs", "size": "1Ti"},
        },
    },
    "own-claim": {
        "history": {"enabled": True, "directory": "/archive", "persistence": {"existingClaim": "mine"}},
        "manager": {"replicas": 1},
    },
    "lost-history": {
        "history": {"enabled": True, "records": {"enabled": False}, "persistence": {"enabled": False}},
        "grafanaDashboard": {"enabled": True, "labels": {"grafana_dashboard": None, "dashboard": "yes"}},
        "v1Jobs": ["pytorchjob"],
    },
}

REFUSED: Mapping[str, tuple[Object, str]] = {
    "unknown": ({"manager": {"replica": 2}}, "replica"),
    "unknown group": ({"operator": {}}, "operator"),
    "type": ({"manager": {"replicas": "2"}}, "manager.replicas"),
    "range": ({"webhook": {"timeoutSeconds": 31}}, "webhook.timeoutSeconds"),
    "choice": ({"webhook": {"failurePolicy": "Maybe"}}, "webhook.failurePolicy"),
    "pattern": ({"watchNamespaces": ["Team"]}, "watchNamespaces"),
    "twice": ({"watchNamespaces": ["a", "a"]}, "watchNamespaces"),
    "kind": ({"v1Jobs": ["caffejob"]}, "v1Jobs"),
    "null": ({"image": None}, "image"),
    "reserved label": ({"commonLabels": {"app.kubernetes.io/part-of": "x"}}, "app.kubernetes.io/part-of"),
    "setting with a value of its own": ({"manager": {"config": {"companion": True}}}, "companion"),
    "unknown setting": ({"manager": {"config": {"wokers": 3}}}, "wokers"),
    "setting of a wrong type": ({"manager": {"config": {"workers": "many"}}}, "workers"),
    "companion with jobs": ({"companion": True, "v1Jobs": ["all"]}, "v1Jobs"),
    "gangs of nothing": ({"gangSchedulerName": "volcano"}, "gangSchedulerName"),
    "all and one": ({"v1Jobs": ["all", "tfjob"]}, "v1Jobs"),
    "retained with a time": (
        {"jobRetentionPolicy": "retain", "ttlSecondsAfterFinished": 5},
        "ttlSecondsAfterFinished",
    ),
    "nothing to enforce": ({"ttlEnforced": True}, "ttlEnforced"),
    "an instance for all": ({"instance": "a"}, "instance"),
    "a policy that nobody reads": ({"ttlSecondsAfterFinished": 5, "watchNamespaces": ["a"]}, "watchNamespaces"),
    "one archive for two": ({"history": {"enabled": True}}, "manager.replicas"),
    "a claim that is not used": (
        {"history": {"persistence": {"enabled": False, "existingClaim": "mine"}}},
        "history.persistence.existingClaim",
    ),
    "a class for a claim that exists": (
        {"history": {"persistence": {"existingClaim": "mine", "storageClassName": "fast"}}},
        "history.persistence.storageClassName",
    ),
    "two budgets": ({"podDisruptionBudget": {"minAvailable": 1}}, "podDisruptionBudget"),
    "no budget": ({"podDisruptionBudget": {"maxUnavailable": None}}, "podDisruptionBudget"),
    "nodes that cannot be drained": (
        {"podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": None}},
        "podDisruptionBudget.minAvailable",
    ),
    "a certificate for nothing": (
        {"webhook": {"enabled": False, "certManager": {"enabled": True}}},
        "webhook.certManager.enabled",
    ),
    "a monitor behind a wall": (
        {"serviceMonitor": {"enabled": True}, "networkPolicy": {"enabled": True}},
        "networkPolicy.metricsFrom",
    ),
}
"""Values that are refused, and the key that is named."""


def build_left_definitions() -> list[Object]:
    """What stays of a release that was uninstalled."""
    annotations = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
    found = [one for one in build_objects(read_values({})) if one["kind"] == "CustomResourceDefinition"]
    for one in found:
        one["metadata"]["annotations"] = {**one["metadata"]["annotations"], **annotations}
        one["metadata"]["labels"] = {**one["metadata"]["labels"], "app.kubernetes.io/managed-by": "Helm"}
    return found


Key = tuple[str, str, str, str]


def index(objects: list[Object]) -> dict[Key, Object]:
    found: dict[Key, Object] = {}
    for one in objects:
        meta = one["metadata"]
        key = (one["apiVersion"], one["kind"], meta.get("namespace", ""), meta["name"])
        assert key not in found, f"{key} twice"
        found[key] = one
    return found


def read_objects(text: str) -> list[Object]:
    return [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one]


class Helm:
    """`kubeconfig`: of the cluster; without one Helm only renders."""

    def __init__(self, program: Path, work: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._work = work
        self._kubeconfig = kubeconfig

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self._work), **SHORT_LIVED}
        if self._kubeconfig is not None:
            environ["KUBECONFIG"] = str(self._kubeconfig)
        return subprocess.run([self._program, *arguments], text=True, capture_output=True, env=environ)

    def run(self, *arguments: str) -> str:
        done = self.ask(*arguments)
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def write(self, values: Object) -> str:
        """The option that passes them."""
        file = self._work / "values.json"
        file.write_text(json.dumps(values))
        return f"--values={file}"

    def render(self, values: Object, namespace: str) -> subprocess.CompletedProcess[str]:
        options = (self.write(values), "--kube-version", _KUBERNETES, "--namespace", namespace)
        return self.ask("template", RELEASE, str(CHART), *options)
