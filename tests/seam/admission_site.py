"""An operator with its webhooks on loopback, as a process of its own.

The webhook configurations name one namespace (cluster runtimes apart), because other tests share the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kube.cluster import KubeCluster
from tests.seam.operator_child import make_orders, running_child
from trainmaster.api.meta import Object
from trainmaster.client.contract import ActingIdentity
from trainmaster.jobs.models.v1jobs import V1Job
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.names import NAME
from trainmaster.operator.rights import Duties
from trainmaster.operator.webhooks.configurations import WebhookPlan, build_configurations

_SHARED = ("Namespace", "Service")


@dataclass(frozen=True)
class AdmissionSite:
    cluster: KubeCluster
    namespace: str
    port: int
    identity: ActingIdentity
    v1_jobs: tuple[type[V1Job], ...]

    @property
    def plan(self) -> WebhookPlan:
        return WebhookPlan(
            self.identity.user,
            url=f"https://127.0.0.1:{self.port}",
            namespaces=(self.namespace,),
            v1_jobs=self.v1_jobs,
        )

    def install_operator(self) -> None:
        """All kinds, and the operator's roles under the name of this site's identity."""
        items = [item for item in build_manifests(Duties(v1_jobs=self.v1_jobs))["items"] if item["kind"] not in _SHARED]
        for item in items:
            if item["kind"] in ("Role", "RoleBinding"):
                # Its own namespace is that of the test.
                item["metadata"]["namespace"] = self.namespace
        name = self.identity.user.rpartition(":")[2]
        self.cluster.apply(_list(items).replace(f'"name": "{NAME}"', f'"name": "{name}"'))

    def install(self, plan: WebhookPlan) -> None:
        items = build_configurations(plan)
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=_list(items))

    def remove(self) -> None:
        for kind in ("mutating", "validating"):
            self.cluster.kubectl("delete", f"{kind}webhookconfiguration", NAME, "--ignore-not-found")

    @contextmanager
    def operating(self, log: Path) -> Iterator[None]:
        """Returns once the operator leads."""
        more = {"webhook_port": self.port, "v1_jobs": bool(self.v1_jobs)}
        with running_child(
            make_orders(self.cluster, self.identity.user, self.namespace, "operator/1", **more), log
        ) as child:
            child.wait_until_leading()
            yield


def _list(items: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
