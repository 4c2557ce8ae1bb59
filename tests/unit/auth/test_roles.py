"""The default roles: what each grants, by group and resource.

A home keeps the roles that it was made with, so a change here reaches new homes only.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainmaster.auth import roles

pytestmark = pytest.mark.unit

READ = "get list watch"
WRITE = "create delete deletecollection patch update"
ALL = f"{READ} {WRITE}"
STREAMS = "pods/attach pods/exec pods/portforward"
V1_JOBS = "jaxjobs mpijobs mxjobs paddlejobs pytorchjobs tfjobs xgboostjobs"
V1_STATUSES = " ".join(f"{plural}/status" for plural in V1_JOBS.split())
V1_SCALES = "jaxjobs/scale paddlejobs/scale pytorchjobs/scale"

GRANTS = {
    "admin": [],
    "edit": [],
    "view": [],
    "system:aggregate-to-admin": [
        ("authorization.k8s.io", "localsubjectaccessreviews", "create"),
        ("rbac.authorization.k8s.io", "rolebindings roles", ALL),
    ],
    "system:aggregate-to-edit": [
        ("", f"{STREAMS} pods/proxy secrets", ALL),
        ("", "services/proxy", READ),
        ("", "configmaps events persistentvolumeclaims pods services", WRITE),
        ("", "serviceaccounts", f"{WRITE} impersonate"),
        ("", "pods/eviction serviceaccounts/token", "create"),
        ("batch", "jobs jobs/status", WRITE),
        ("coordination.k8s.io", "leases", ALL),
    ],
    "system:aggregate-to-view": [
        ("", "configmaps endpoints events limitranges namespaces namespaces/status", READ),
        ("", "persistentvolumeclaims persistentvolumeclaims/status pods pods/log pods/status", READ),
        ("", "resourcequotas resourcequotas/status serviceaccounts services services/status", READ),
        ("apps", "deployments deployments/status", READ),
        ("batch", "jobs jobs/status", READ),
        ("events.k8s.io", "events", READ),
    ],
    "system:aggregated-metrics-reader": [("metrics.k8s.io", "nodes pods", READ)],
    "trainmaster:training-edit": [
        ("jobset.x-k8s.io", "jobsets", WRITE),
        ("kubeflow.org", V1_JOBS, WRITE),
        ("kubeflow.org", V1_SCALES, "patch update"),
        ("trainer.kubeflow.org", "trainingruntimes trainjobs", WRITE),
    ],
    "trainmaster:training-view": [
        ("jobset.x-k8s.io", "jobsets jobsets/status", READ),
        ("kubeflow.org", f"{V1_JOBS} {V1_STATUSES}", READ),
        ("kubeflow.org", V1_SCALES, "get"),
        ("trainer.kubeflow.org", "clustertrainingruntimes trainingruntimes trainjobs trainjobs/status", READ),
    ],
    "trainmaster:runtime-viewer": [("trainer.kubeflow.org", "clustertrainingruntimes", READ)],
    "trainmaster-tenant": [
        ("", "configmaps persistentvolumeclaims secrets", ALL),
        ("", "events limitranges resourcequotas serviceaccounts services", READ),
        ("", "pods", f"{READ} create delete deletecollection"),
        ("", "pods/log pods/status", "get"),
        ("", STREAMS, "create get"),
        ("apps", "deployments", READ),
        ("batch", "jobs", READ),
        ("events.k8s.io", "events", READ),
        ("jobset.x-k8s.io", "jobsets", READ),
        ("kubeflow.org", V1_JOBS, ALL),
        ("kubeflow.org", V1_SCALES, "get patch update"),
        ("metrics.k8s.io", "pods", READ),
        ("trainer.kubeflow.org", "trainingruntimes trainjobs", ALL),
    ],
    "system:basic-user": [
        ("authentication.k8s.io", "selfsubjectreviews", "create"),
        ("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
    ],
    "system:auth-delegator": [
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    ],
    "cluster-admin": [("*", "*", "*")],
    "system:discovery": [],
    "system:public-info-viewer": [],
    "system:monitoring": [],
}


def expand(grants: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str], set[str]]:
    return {(group, name): set(verbs.split()) for group, names, verbs in grants for name in names.split()}


def test_each_role_grants_these_verbs() -> None:
    found: dict[str, dict[tuple[str, str], set[str]]] = {}
    for role in roles.build_cluster_roles():
        granted = found.setdefault(role["metadata"]["name"], {})
        for rule in role["rules"]:
            for group in rule.get("apiGroups", ()):
                for name in rule["resources"]:
                    granted.setdefault((group, name), set()).update(rule["verbs"])
    assert found == {name: expand(grants) for name, grants in GRANTS.items()}
