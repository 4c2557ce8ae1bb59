"""The stage on a real cluster: our operator through a proxy, fake nodes that follow the test's script.

The operator acts as the service account of `trainmaster.operator.rights`, with that role and nothing else, and
works only in the namespace of its test. `disturbed`: while the test runs, its connections are cut, a stranger changes
the objects it writes, and once it is stopped in the middle and started again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.flow.plant import Script, ScriptedNode, succeed
from tests.flow.stage import Stage
from tests.kube.cluster import KubeCluster
from tests.seam.proxy import Proxy
from trainmaster.api.meta import GVR
from trainmaster.api.resources import JOB_SETS, NAMESPACES, PODS, ROLE_BINDINGS, ROLES, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ActingIdentity, Client, PatchType, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.server_time import ServerClock
from trainmaster.engine.lease import LeaseLost
from trainmaster.jobs.models.v1jobs import V1Job
from trainmaster.kit.clock import Clock, SystemClock, format_time
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.operator.mode import PATIENCE, Operator, OperatorSettings, running_operator
from trainmaster.operator.rights import SERVICE_ACCOUNT, Duties, list_own_rules

GROUPS = ("system:serviceaccounts", "system:authenticated")
IDENTITY = ActingIdentity(SERVICE_ACCOUNT, groups=GROUPS)
_RBAC = "rbac.authorization.k8s.io"
_REVIEWS = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_CUT_SECONDS = 0.7
_WRITE_SECONDS = 0.1
_RESTART_SECONDS = 1.5
_QUIET_SECONDS = 1.0


@dataclass
class KwokNode(ScriptedNode):
    """kwok has the Pods run and removes deleted ones; this ends them as the script says."""

    seconds: float = 0.2
    namespace: str = ""

    async def run(self, client: Client, clock: Clock) -> None:
        seen: set[str] = set()
        async with Scope("kwok-node") as scope:
            while True:
                try:
                    async with client.watch(PODS, self.namespace, WatchOptions()) as events:
                        async for event in events:
                            pod = event.object
                            uid = pod["metadata"]["uid"]
                            if pod["metadata"].get("deletionTimestamp") and f"{uid}/end" not in seen:
                                # kwok does not say how it ended, as a kubelet does; the Job's finalizer keeps it.
                                seen |= {uid, f"{uid}/end"}
                                scope.spawn_guarded(self.report_stopped(client, clock, pod), name="node.stopped")
                            elif uid not in seen and (pod.get("status") or {}).get("phase") == "Running":
                                seen.add(uid)
                                moment = format_time(clock.now())
                                work = self.end(client, clock, pod, self.count_start(pod), moment)
                                scope.spawn_guarded(work, name="node.end")
                except StatusError as error:
                    assert error.code >= 500, error
                    await clock.sleep(0.2)


class Site:
    """One namespace of the cluster with an operator in it that can be stopped, started and cut off."""

    def __init__(self, cluster: KubeCluster, client: HttpClient, namespace: str, proxy: Proxy, scope: Scope) -> None:
        self.cluster = cluster
        self.client = client
        self.namespace = namespace
        self.proxy = proxy
        self.calls: Counter[str] = Counter()
        """What the operator asked of the API server: method, plural and status."""
        self.trouble: list[asyncio.Task[None]] = []
        """What `come_to_rest` ends."""
        self.stop_after = 0
        """The operator is stopped right after the answer to its n-th write; 0: never."""
        self.identity = IDENTITY
        self.v1_jobs: tuple[type[V1Job], ...] = ()
        self.gang_scheduler = ""
        self.others: tuple[str, ...] = ()
        """Further namespaces in which the operator works."""
        self.history: Path | None = None
        self.config: ClusterConfig | None = None
        """How the operator reaches the API server; None: through the proxy."""
        self.clock: Clock = SystemClock()
        """The clock of the operator's machine."""
        self._scope = scope
        self._operating: asyncio.Task[None] | None = None
        self._operator: Operator | None = None

    async def start(self) -> None:
        """Returns once the operator leads and works."""
        ready = asyncio.Event()
        self._operating = self._scope.spawn(self._operate(ready), name="site.operator")
        await ready.wait()

    async def stop(self) -> None:
        """As SIGTERM does: whatever it was doing ends where it stands."""
        if self._operating is not None:
            self._operating.cancel()
            await asyncio.wait([self._operating])
        self._operating = self._operator = None

    async def ended(self) -> None:
        """Returns once the operator has been stopped by `stop_after`."""
        assert self._operating is not None
        await asyncio.wait([self._operating])

    def take(self, other: Site) -> None:
        """The operator of another site is ours from now on."""
        self._operating, self._operator = other._operating, other._operator

    async def _operate(self, ready: asyncio.Event) -> None:
        """As a Deployment does: an operator that lost its lease (a server away for long, a busy machine) comes back."""
        while True:
            try:
                await self._operate_once(ready)
            except LeaseLost:
                continue

    async def _operate_once(self, ready: asyncio.Event) -> None:
        config = self.config or make_config(self.cluster, self.proxy.port)
        clock, ids = ServerClock(self.clock), SystemIds()
        connection = HttpClient(
            config, clock=clock, user_agent="operator/1", observe=self._observe, ids=ids, patience=PATIENCE
        )
        settings = OperatorSettings(
            namespaces=(self.namespace, *self.others),
            lease_namespace=self.namespace,
            history=self.history,
            v1_jobs=self.v1_jobs,
            gang_scheduler=self.gang_scheduler,
        )
        work = running_operator(connection.as_user(self.identity), settings, clock=clock, ids=ids)
        try:
            async with work as self._operator:
                ready.set()
                await asyncio.get_running_loop().create_future()
        finally:
            await connection.close()

    def _observe(self, method: str, path: str, status: int) -> None:
        parts = path.split("/")
        plural = next((parts[parts.index(one) + 1] for one in (self.namespace, *self.others) if one in parts), parts[4])
        self.calls[f"{method} {plural} {status}"] += 1
        if self.stop_after and self.count_writes() == self.stop_after and self._operating is not None:
            self._operating.cancel()

    def count_writes(self) -> int:
        """In the namespace, accepted or not, the lease's own left out."""
        skipped = ("GET ", "WATCH ")
        others = (" leases ", " clustertrainingruntimes ")
        return sum(
            count
            for call, count in self.calls.items()
            if not call.startswith(skipped) and not any(other in call for other in others)
        )

    async def come_to_rest(self) -> None:
        """The trouble ends; then nothing in the namespace has changed for a while and the operator is idle."""
        for task in self.trouble:
            task.cancel()
        stage = Stage(self.client, self.namespace, KwokNode(), self.come_to_rest)
        before: dict[tuple[str, str], str] = {}
        while True:
            now = await stage.list_versions()
            if now == before and self._operator is not None and self._operator.manager.is_idle:
                return
            before = now
            await asyncio.sleep(_QUIET_SECONDS)


def make_config(cluster: KubeCluster, port: int, token: str = "") -> ClusterConfig:
    """As the administrator unless a token is given."""
    return ClusterConfig(f"https://127.0.0.1:{port}", token=token or cluster.token, ca_pem=cluster.ca.read_text())


@asynccontextmanager
async def open_site(cluster: KubeCluster) -> AsyncIterator[Site]:
    """A namespace of its own, which ends with the cluster; no operator runs in it yet."""
    client = HttpClient(make_config(cluster, cluster.ports["kube-apiserver"]), user_agent="test/1")
    name = f"seam-{SystemIds().suffix(8)}"
    try:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with Proxy(cluster.ports["kube-apiserver"]).running() as proxy, Scope("site") as scope:
            site = Site(cluster, client, name, proxy, scope)
            await grant_own(client, name, IDENTITY, Duties())
            yield site
            await site.stop()
    finally:
        await client.close()


async def grant_own(client: Client, namespace: str, identity: ActingIdentity, duties: Duties) -> None:
    """The rights of an operator whose own namespace is that of the test. Returns once they are in force."""
    meta = {"name": f"{identity.user.replace(':', '.')}{'.companion' * duties.companion}", "namespace": namespace}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": list_own_rules(duties)}
    subject = {"kind": "User", "apiGroup": _RBAC, "name": identity.user}
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": meta["name"]}
    binding = {**role, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference}
    binding.pop("rules")
    await client.create(ROLES, role, namespace)
    await client.create(ROLE_BINDINGS, binding, namespace)
    asked = {"namespace": namespace, "verb": "create", "group": "coordination.k8s.io", "resource": "leases"}
    review = {"apiVersion": _REVIEWS.api_version, "kind": "SelfSubjectAccessReview"}
    while True:
        answer = await client.as_user(identity).create(_REVIEWS, {**review, "spec": {"resourceAttributes": asked}})
        if answer["status"]["allowed"]:
            return
        await asyncio.sleep(0.02)


@asynccontextmanager
async def kube_stage(
    cluster: KubeCluster, script: Script = succeed, *, disturbed: bool = False
) -> AsyncIterator[Stage]:
    async with open_site(cluster) as site, Scope("stage") as scope:
        node = KwokNode(script, namespace=site.namespace)
        scope.spawn_forever(node.run(site.client, SystemClock()), name="stage.node")
        await site.start()
        if disturbed:
            works = [cut_again_and_again(site.proxy), restart_once(site)]
            works += [write_again_and_again(site.client, gvr, site.namespace) for gvr in (TRAIN_JOBS, JOB_SETS)]
            site.trouble = [scope.spawn(work, name="stage.trouble") for work in works]
        yield Stage(site.client, site.namespace, node, site.come_to_rest)


async def cut_again_and_again(proxy: Proxy) -> None:
    while True:
        await asyncio.sleep(_CUT_SECONDS)
        proxy.cut()


async def restart_once(site: Site) -> None:
    await asyncio.sleep(_RESTART_SECONDS)
    await site.stop()
    await site.start()


async def write_again_and_again(client: Client, gvr: GVR, namespace: str, *, pause: float = _WRITE_SECONDS) -> None:
    """A stranger with a loop: every write of others that was prepared before is a conflict."""
    number = 0
    while True:
        await asyncio.sleep(pause)
        try:
            for obj in (await client.list(gvr, namespace)).items:
                number += 1
                patch = {"metadata": {"labels": {"stranger": str(number)}}}
                await client.patch(gvr, obj["metadata"]["name"], PatchType.MERGE, patch, namespace)
        except StatusError as error:
            assert error.code == 404 or error.code >= 500, error
