"""What a cluster needs for an operator that does not run in a Pod: our kinds, and the rights of `rights.py`.

Tests run the operator with exactly this; `trainmaster operator --print-manifests --without-deployment` prints it. The
whole installation is in `install`. JobSet is not included: its own release installs its kinds and its manager.
"""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.operator.install import read_values
from trainmaster.operator.install.building import build_foreground_objects
from trainmaster.operator.rights import Duties
from trainmaster.operator.webhooks.configurations import WebhookPlan, build_configurations


def build_manifests(
    duties: Duties = Duties(),  # noqa: B008 - frozen
    webhooks: WebhookPlan | None = None,
) -> Object:
    """As a companion of upstream's managers their kinds already exist, and must not be replaced. `webhooks`: only for
    an operator that API servers can reach."""
    values = {
        "companion": duties.companion,
        "v1Jobs": [model.framework.singular for model in duties.v1_jobs],
        "watchNamespaces": list(duties.namespaces),
        "history": {"enabled": duties.history, "records": {"enabled": duties.records}},
        "manager": {"replicas": 1},
    }
    items = build_foreground_objects(read_values(values), duties.own_namespace)
    return wrap([*items, *(() if webhooks is None else build_configurations(webhooks))])


def wrap(items: list[Object]) -> Object:
    """As one object, for `kubectl apply`."""
    return {"apiVersion": "v1", "kind": "List", "items": items}
