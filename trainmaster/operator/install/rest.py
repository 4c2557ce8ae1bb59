"""The REST API before a cluster, with its roles and those of tenants, as a part of an installation.

It is what deploy/rest has; a test compares the two.
"""

from __future__ import annotations

from trainmaster.api import tenancy
from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import Object
from trainmaster.auth.contract import AUTHENTICATED
from trainmaster.auth.roles import build_rules
from trainmaster.operator.install.parts import COMMON_LABELS, HERE, describe_config_map, describe_head, describe_pod
from trainmaster.operator.install.values import NAME_LABEL, PART_OF
from trainmaster.operator.templating.nodes import Document, MergedWith, Text, Tree, Value, When
from trainmaster.rest.logins.storage import SECRET as LOGINS_SECRET

NAME = "trainmaster-rest"
_SELECTED = {NAME_LABEL: NAME}
_GROUP = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_PORT = 8443
_SETTINGS = {
    "TRAINMASTER_REST_ADDRESS": "0.0.0.0",
    "TRAINMASTER_REST_PORT": str(_PORT),
    "TRAINMASTER_REST_MAX_NODES": "1000",
    "TRAINMASTER_REST_MAX_BODY_BYTES": "2097152",
    "TRAINMASTER_REST_REQUESTS_PER_SECOND": "50",
    "TRAINMASTER_REST_REQUEST_BURST": "200",
    "TRAINMASTER_REST_SIGN_UP": "false",
}


def describe_rest_access() -> list[Document]:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": describe_head(NAME)}
    ours = {"kind": "ServiceAccount", "name": NAME, "namespace": HERE}
    everyone = {"apiGroup": _GROUP, "kind": "Group", "name": AUTHENTICATED}
    objects = [
        account,
        _describe_role(NAME, _OWN),
        _describe_binding(NAME, ours),
        {"apiVersion": f"{_GROUP}/v1", "kind": "Role", "metadata": describe_head(NAME), "rules": _LOGINS},
        _describe_binding(NAME, ours, kind="Role"),
        _describe_role("trainmaster-rest-v1", _CALLERS),
        _describe_role("trainmaster-runtimes", [_rule("trainer.kubeflow.org", ["clustertrainingruntimes"], _READ)]),
        _describe_binding("trainmaster-runtimes", everyone),
        _describe_role("trainmaster-tenant-manager", _MANAGERS),
        _describe_role(tenancy.ROLE, build_rules("tenant", catalogue.build().kinds)),
    ]
    return [_where("rest-rights", one) for one in objects]


def describe_rest() -> list[Document]:
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": describe_head(NAME),
        "spec": {
            "podSelector": {"matchLabels": _SELECTED},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": _PORT}]}],
        },
    }
    return [
        _where("rest", describe_config_map(NAME, _SETTINGS)),
        _where("rest", _describe_service()),
        _where("rest", _describe_deployment()),
        _where("rest", When(Value("networkPolicy.enabled"), policy)),
    ]


def _where(file: str, tree: Tree) -> Document:
    return Document(file, When(Value("rest.enabled"), tree))


def _rule(group: str, names: list[str], verbs: list[str], only: str = "") -> Object:
    rule = {"apiGroups": [group], "resources": names, "verbs": verbs}
    return {**rule, "resourceNames": [only]} if only else rule


# For itself: to review tokens, and to clean up after crashes. Requests are sent with the token of their caller.
_OWN = [
    _rule("", ["configmaps", "pods", "pods/log"], ["create", "get", "list", "update", "patch", "delete"]),
    _rule("trainer.kubeflow.org", ["trainjobs"], ["create", "get", "list", "update", "patch", "delete", "watch"]),
    _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
]
# In its own namespace: the state of logins of the dashboard. `create` cannot be limited to a name.
_LOGINS = [
    _rule("", ["secrets"], ["create"]),
    _rule("", ["secrets"], ["get", "update"], only=LOGINS_SECRET),
]
# What callers need who are no tenants; bound by an administrator.
_CALLERS = [
    _rule(
        "",
        ["configmaps", "pods", "events", "services", "resourcequotas", "limitranges", "persistentvolumeclaims"],
        _READ,
    ),
    _rule("trainer.kubeflow.org", ["trainingruntimes"], _READ),
    _rule("jobset.x-k8s.io", ["jobsets"], _READ),
    _rule("batch", ["jobs"], _READ),
]
# Of those who manage tenants; bound by an administrator.
_MANAGERS = [
    _rule("", ["namespaces"], ["get", "list", "create", "patch", "delete"]),
    _rule("", ["serviceaccounts"], ["get", "list", "create", "delete"]),
    _rule("", ["resourcequotas", "limitranges"], ["get", "list", "create", "patch", "delete"]),
    _rule("", ["configmaps"], ["get", "list", "create", "update", "patch", "delete"]),
    _rule("", ["serviceaccounts/token"], ["create"]),
    _rule("", ["secrets"], ["list", "create", "delete"]),
    _rule(_GROUP, ["rolebindings"], ["get", "create", "delete"]),
    _rule(_GROUP, ["clusterroles"], ["bind"], only=tenancy.ROLE),
]


def _describe_role(name: str, rules: list[Object]) -> Object:
    head = describe_head(name, "")
    return {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": head, "rules": rules}


def _describe_binding(name: str, subject: Object, kind: str = "ClusterRole") -> Object:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": describe_head(name, "") if kind == "ClusterRole" else describe_head(name),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": name},
        "subjects": [subject],
    }


def _describe_service() -> Object:
    # Not `trainmaster-rest`: other Pods would get variables that look like our settings.
    ports = [{"name": "https", "port": 443, "targetPort": "https"}]
    spec = {"selector": _SELECTED, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": describe_head("rest"), "spec": spec}


def _describe_deployment() -> Object:
    volumes: list[Tree] = [
        {"name": "tls", "secret": {"secretName": Value("rest.tlsSecretName")}},
        {"name": "state", "emptyDir": {}},
    ]
    labels = MergedWith({PART_OF: "trainmaster", **_SELECTED}, (COMMON_LABELS,))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**describe_head(NAME), "labels": labels},
        "spec": {
            "replicas": Value("rest.replicas"),
            "selector": {"matchLabels": _SELECTED},
            "template": {"metadata": {"labels": labels}, "spec": describe_pod(NAME, _describe_container(), volumes)},
        },
    }


def _describe_container() -> Object:
    files = ["--tls-cert=/tls/tls.crt", "--tls-key=/tls/tls.key", "--state=/state"]
    return {
        "name": "rest",
        "args": [
            "rest",
            *files,
            Text("--log-form=", Value("log.form")),
            Text("--log-level=", Value("log.level")),
        ],
        "envFrom": [{"configMapRef": {"name": NAME}}],
        "env": When(Value("rest.env"), Value("rest.env")),
        "ports": [{"name": "https", "containerPort": _PORT}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 20},
        "resources": When(Value("rest.resources"), Value("rest.resources")),
        "volumeMounts": [
            {"name": "tls", "mountPath": "/tls", "readOnly": True},
            {"name": "state", "mountPath": "/state"},
        ],
    }
