"""The collections that our own controllers and the node read and write, by the name of their plural.

Used by reconcilers, sources, the node and tests, so that nobody spells a group or a version twice. What a kind is
(schema, defaults, columns) is declared elsewhere (`api.declaring.kinds`); these are only addresses.
"""

from __future__ import annotations

from trainmaster.api.meta import GVR

PODS = GVR("", "v1", "pods")
SERVICES = GVR("", "v1", "services")
PERSISTENT_VOLUME_CLAIMS = GVR("", "v1", "persistentvolumeclaims")
PERSISTENT_VOLUMES = GVR("", "v1", "persistentvolumes")
STORAGE_CLASSES = GVR("storage.k8s.io", "v1", "storageclasses")
SERVICE_ACCOUNTS = GVR("", "v1", "serviceaccounts")
CONFIG_MAPS = GVR("", "v1", "configmaps")
SECRETS = GVR("", "v1", "secrets")
NAMESPACES = GVR("", "v1", "namespaces")
NODES = GVR("", "v1", "nodes")
EVENTS = GVR("", "v1", "events")
CUSTOM_RESOURCE_DEFINITIONS = GVR("apiextensions.k8s.io", "v1", "customresourcedefinitions")
RESOURCE_QUOTAS = GVR("", "v1", "resourcequotas")
LIMIT_RANGES = GVR("", "v1", "limitranges")
PRIORITY_CLASSES = GVR("scheduling.k8s.io", "v1", "priorityclasses")
LEASES = GVR("coordination.k8s.io", "v1", "leases")
RBAC_GROUP = "rbac.authorization.k8s.io"
ROLES = GVR(RBAC_GROUP, "v1", "roles")
CLUSTER_ROLES = GVR(RBAC_GROUP, "v1", "clusterroles")
ROLE_BINDINGS = GVR(RBAC_GROUP, "v1", "rolebindings")
CLUSTER_ROLE_BINDINGS = GVR(RBAC_GROUP, "v1", "clusterrolebindings")
DEPLOYMENTS = GVR("apps", "v1", "deployments")
POD_DISRUPTION_BUDGETS = GVR("policy", "v1", "poddisruptionbudgets")
NETWORK_POLICIES = GVR("networking.k8s.io", "v1", "networkpolicies")
API_SERVICES = GVR("apiregistration.k8s.io", "v1", "apiservices")
SERVICE_MONITORS = GVR("monitoring.coreos.com", "v1", "servicemonitors")
PROMETHEUS_RULES = GVR("monitoring.coreos.com", "v1", "prometheusrules")
CERTIFICATES = GVR("cert-manager.io", "v1", "certificates")
ISSUERS = GVR("cert-manager.io", "v1", "issuers")
JOBS = GVR("batch", "v1", "jobs")
JOB_SETS = GVR("jobset.x-k8s.io", "v1alpha2", "jobsets")
TRAIN_JOBS = GVR("trainer.kubeflow.org", "v1alpha1", "trainjobs")
TRAINING_RUNTIMES = GVR("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
CLUSTER_TRAINING_RUNTIMES = GVR("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
COSCHEDULING_POD_GROUPS = GVR("scheduling.x-k8s.io", "v1alpha1", "podgroups")
VOLCANO_POD_GROUPS = GVR("scheduling.volcano.sh", "v1beta1", "podgroups")
HORIZONTAL_POD_AUTOSCALERS = GVR("autoscaling", "v2", "horizontalpodautoscalers")
VALIDATING_WEBHOOK_CONFIGURATIONS = GVR("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
MUTATING_WEBHOOK_CONFIGURATIONS = GVR("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
JOB_RECORDS = GVR("records.trainmaster.dev", "v1alpha1", "jobrecords")
"""Records of jobs, also of deleted ones; on a cluster, the operator with an archive serves them."""
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; Kueue before 0.15 has only the second one."""
