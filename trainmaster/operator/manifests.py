"""What a cluster needs before the operator can work: our kinds, and the rights of `rights.py`.

`trainmaster operator --print-manifests` prints it for `kubectl apply`; tests/seam runs the operator with exactly this
role. JobSet is not included: its own release installs its kinds and its manager.
"""

from __future__ import annotations

from trainmaster.api.declaring import catalogue, crd
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.operator.rights import NAME, Duties, build_access
from trainmaster.operator.webhooks.configurations import PORT as WEBHOOK_PORT
from trainmaster.operator.webhooks.configurations import WebhookPlan, build_configurations

PORT = 10443
"""The status server's port, as upstream."""


def build_manifests(
    duties: Duties = Duties(),  # noqa: B008 - frozen
    webhooks: WebhookPlan | None = None,
) -> Object:
    """As a companion of upstream's managers their kinds already exist, and must not be replaced. `webhooks`: only for
    an operator that API servers can reach."""
    if duties.companion:
        return {"apiVersion": "v1", "kind": "List", "items": _build_access(duties)}
    wanted = {model.gvr for model in duties.v1_jobs}
    kinds = [kind for kind in catalogue.build().kinds if kind.group == TRAIN_JOBS.group or kind.gvr in wanted]
    items = [*crd.build_all(kinds), *_build_access(duties), _build_service(duties.own_namespace)]
    if webhooks is not None:
        items += build_configurations(webhooks)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def build_progress_url(namespace: str, port: int = PORT) -> str:
    """The URL at which Pods of the cluster reach the status server of operators in Pods."""
    return f"https://{NAME}.{namespace}.svc:{port}"


def _build_service(namespace: str) -> Object:
    """Selects the operator's Pods by a label that they must have."""
    ports = [
        {"name": "progress", "port": PORT, "targetPort": PORT, "protocol": "TCP"},
        {"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"},
    ]
    spec = {"selector": {"app.kubernetes.io/name": NAME}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": namespace}, "spec": spec}


def _build_access(duties: Duties) -> list[Object]:
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": duties.own_namespace}}
    return [own, *build_access(duties)]
