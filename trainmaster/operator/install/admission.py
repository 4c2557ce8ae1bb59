"""The webhook configurations, and the certificate of cert-manager, if it makes that of the webhooks."""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.operator.install.parts import HERE, describe_head
from trainmaster.operator.install.workload import INJECTED, WEBHOOK_SECRET, WEBHOOKS
from trainmaster.operator.names import NAME, describe_cluster_name
from trainmaster.operator.rights import LISTED, V1_JOBS
from trainmaster.operator.templating.nodes import Document, Fallback, Not, Text, Tree, Value, When
from trainmaster.operator.webhooks.configurations import WebhookPlan, describe_configurations

_NAME = "trainmaster-webhook"
_ISSUER = Value("webhook.certManager.issuerName")
_API = "cert-manager.io/v1"
_INJECT = "cert-manager.io/inject-ca-from"


def describe_certificate() -> list[Document]:
    issuer = {"apiVersion": _API, "kind": "Issuer", "metadata": describe_head(_NAME), "spec": {"selfSigned": {}}}
    return [
        Document("certificate", When(INJECTED, When(Not(_ISSUER), issuer))),
        Document("certificate", When(INJECTED, _describe_certificate())),
    ]


def _describe_certificate() -> Object:
    host = (NAME, ".", HERE, ".svc")
    spec = {
        "secretName": WEBHOOK_SECRET,
        "dnsNames": [Text(*host), Text(*host, ".cluster.local")],
        "issuerRef": {"name": Fallback(_ISSUER, _NAME), "kind": Value("webhook.certManager.issuerKind")},
        "privateKey": {"rotationPolicy": "Always"},
    }
    return {"apiVersion": _API, "kind": "Certificate", "metadata": describe_head(_NAME), "spec": spec}


def describe_webhooks(url: str = "") -> list[Document]:
    """`caBundle` is not set: the operator fills it in, or cert-manager. `url`: instead of the Service."""
    annotations: Tree = When(INJECTED, {_INJECT: Text(HERE, f"/{_NAME}")})
    plan = WebhookPlan(
        Text("system:serviceaccount:", HERE, f":{NAME}"),
        name=describe_cluster_name(NAME),
        namespace=HERE,
        url=url,
        failure_policy=Value("webhook.failurePolicy"),
        timeout_seconds=Value("webhook.timeoutSeconds"),
        namespaces=LISTED,
        v1_jobs=V1_JOBS,
        annotations=annotations,
    )
    return [Document("webhooks", When(WEBHOOKS, one)) for one in describe_configurations(plan)]
