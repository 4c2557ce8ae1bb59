"""Probes and metrics of an operator on a real control plane that answers late and goes away for a while."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.kube.cluster import KubeCluster
from tests.seam.stage import IDENTITY, Site, make_config, open_site
from tests.unit.operator.monitoring.wire import HOSTILE
from trainmaster.api.meta import GVR, Object
from trainmaster.client.http import HttpClient
from trainmaster.edge.server import open_listener
from trainmaster.engine import metrics as engine_metrics
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.metrics import MetricSpec
from trainmaster.kit.scopes import Scope
from trainmaster.operator import metrics as operator_metrics
from trainmaster.operator.key_data import decode_text
from trainmaster.operator.mode import OperatorSettings, ProgressSettings, running_operator
from trainmaster.operator.monitoring import health
from trainmaster.operator.monitoring.health import HealthSettings
from trainmaster.operator.monitoring.metrics_server import MetricsSettings
from trainmaster.operator.rights import METRICS_READER
from trainmaster.operator.status_keys import SECRET

pytestmark = pytest.mark.kube

_SERVICE_ACCOUNTS = GVR("", "v1", "serviceaccounts")
_SECRETS = GVR("", "v1", "secrets")
_BINDINGS = GVR("rbac.authorization.k8s.io", "v1", "clusterrolebindings")


def find_port() -> int:
    with contextlib.closing(open_listener("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Replica:
    health_port: int
    metrics_port: int
    ready: asyncio.Event
    """It leads and works."""

    async def probe(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(get, self.health_port, path)

    async def scrape(self, token: str, ca: str) -> tuple[int, str]:
        context = ssl.create_default_context(cadata=ca)
        return await asyncio.to_thread(get, self.metrics_port, "/metrics", token, context)

    async def wait_for(self, path: str, code: int) -> str:
        """The text, once it answers with that code."""
        while True:
            found, text = await self.probe(path)
            if found == code:
                return text
            await asyncio.sleep(0.05)


def get(port: int, path: str, token: str = "", context: ssl.SSLContext | None = None) -> tuple[int, str]:
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        if context is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    )
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@asynccontextmanager
async def running_replica(site: Site) -> AsyncIterator[Replica]:
    """Returns when its port for probes answers."""
    replica = Replica(find_port(), find_port(), asyncio.Event())
    settings = OperatorSettings(
        namespaces=(site.namespace,),
        lease_namespace=site.namespace,
        progress=ProgressSettings("https://127.0.0.1", site.namespace, "127.0.0.1", find_port()),
        health=HealthSettings("127.0.0.1", replica.health_port),
        metrics=MetricsSettings("127.0.0.1", replica.metrics_port),
    )

    async def operate() -> None:
        client = HttpClient(make_config(site.cluster, site.proxy.port), user_agent="operator/1")
        work = running_operator(client.as_user(IDENTITY), settings, clock=SystemClock(), ids=SystemIds())
        try:
            async with work:
                replica.ready.set()
                await asyncio.get_running_loop().create_future()
        finally:
            await client.close()

    async with Scope("replica") as scope:
        task = scope.spawn(operate(), name="replica.operate")
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                await replica.probe("/healthz")
                break
            await asyncio.sleep(0.02)
        yield replica
        task.cancel()


def test_a_replica_is_alive_at_once_and_ready_when_its_cluster_has_answered(
    seam_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LONGEST_TROUBLE", 1.0)

    async def main() -> None:
        async with open_site(seam_cluster) as site:
            site.proxy.refusing = True
            async with running_replica(site) as replica:
                assert await replica.probe("/healthz") == (200, "ok")
                code, text = await replica.probe("/readyz")
                assert code == 503 and "[-]start failed: the operator is starting" in text
                site.proxy.refusing = False
                await replica.wait_for("/readyz", 200)
                _, text = await replica.probe("/readyz?verbose")
                assert text == "[+]ping ok\n[+]cache ok\n[+]progress-certificate ok\nreadyz check passed\n"
                await replica.ready.wait()
                async with running_replica(site) as other:
                    await other.wait_for("/readyz", 200)
                    assert not other.ready.is_set(), "it does not lead, and is ready for what every replica does"
                site.proxy.refusing = True
                site.proxy.cut()
                text = await replica.wait_for("/readyz", 503)
                assert "[-]cache failed: no news of " in text
                assert await replica.probe("/healthz") == (200, "ok")
                site.proxy.refusing = False
                await replica.wait_for("/readyz", 200)

    asyncio.run(main())


def test_metrics_are_for_a_token_whose_owner_may_get_them(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as site, running_replica(site) as replica:
            reader, stranger = [await make_token(site, name) for name in ("prometheus", "stranger")]
            await bind_reader(site, "prometheus")
            await replica.ready.wait()
            ca = decode_text((await site.client.get(_SECRETS, SECRET, site.namespace))["data"]["ca.crt"])
            assert (await replica.scrape("", ca))[0] == 401
            assert (await replica.scrape("made-up", ca))[0] == 401
            code, text = await replica.scrape(stranger, ca)
            assert code == 403 and f"system:serviceaccount:{site.namespace}:stranger" in text
            code, text = await replica.scrape(reader, ca)
            assert code == 200, text
            declared = set(re.findall("^# TYPE ([a-z_]+) ", text, re.MULTILINE))
            assert {spec.name for spec in (*list_specs(operator_metrics), *list_specs(engine_metrics))} <= declared
            assert 'leader_election_master_status{name="trainmaster-operator"} 1' in text
            assert re.search(r'rest_client_requests_total\{code="200",method="GET",host="[0-9.]+:[0-9]+"\} [1-9]', text)
            assert re.search(r'certificate_expiration_timestamp_seconds\{port="progress"\} [0-9]{10}', text)
            await check_hostile_requests(replica, ca)

    asyncio.run(main())


def list_specs(module: ModuleType) -> list[MetricSpec]:
    return [value for value in vars(module).values() if isinstance(value, MetricSpec)]


async def make_token(site: Site, name: str) -> str:
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await site.client.create(_SERVICE_ACCOUNTS, account, site.namespace)
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await site.client.create(_SERVICE_ACCOUNTS, request, site.namespace, subresource="token", name=name)
    return str(made["status"]["token"])


async def bind_reader(site: Site, name: str) -> None:
    """Returns once the API server knows it."""
    rbac, user = _BINDINGS.group, f"system:serviceaccount:{site.namespace}:{name}"
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{site.namespace}-{name}"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": METRICS_READER},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": site.namespace}],
    }
    await site.client.create(_BINDINGS, binding)
    reviews = GVR("authorization.k8s.io", "v1", "subjectaccessreviews")
    spec = {"user": user, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    review = {"apiVersion": reviews.api_version, "kind": "SubjectAccessReview", "spec": spec}
    while not (await site.client.create(reviews, review))["status"]["allowed"]:
        await asyncio.sleep(0.02)


async def check_hostile_requests(replica: Replica, ca: str) -> None:
    """Both ports answer as they should, and go on answering."""
    context = ssl.create_default_context(cadata=ca)
    for port, tls in ((replica.health_port, None), (replica.metrics_port, context)):
        for data, codes in HOSTILE:
            if codes:
                line = await send(port, tls, data)
                assert line.startswith(b"HTTP/1.1 %d " % codes[0]), (port, data[:40], line)
    assert await replica.probe("/healthz") == (200, "ok")
    assert (await replica.scrape("", ca))[0] == 401


async def send(port: int, tls: ssl.SSLContext | None, data: bytes) -> bytes:
    """The first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(data)
        return await reader.readline()
    finally:
        writer.transport.abort()
