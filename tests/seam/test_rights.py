"""The operator with exactly its printed rights, as a real service account: nothing is refused, and nothing is too much.

One operator runs everything that needs rights: TrainJobs with MPI and PodGroups, the v1 kinds, derived runtimes,
records and who reads them, TTLs, progress. Strangers change what it made, so that it has to repair it; the first answer
to each kind of write is lost, so that it has to look what became of it. Then the audit log is compared with its roles.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.flow.stage import make_trainjob
from tests.flow.test_v1_flow import REPLICA_TYPE, make_job
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.fixtures import NEEDED
from tests.kube.managers import VOLCANO_PODGROUPS
from tests.seam.proxy import Proxy
from tests.seam.records_site import install
from tests.seam.rights_used import Requests, Right, install_access, may
from tests.seam.stage import KwokNode, make_config
from tests.seam.test_progress import ask, free_port, issue
from tools.toolbox import Toolbox
from trainmaster.api.labels import DERIVED, JOBSET_NAME, LAST_USED
from trainmaster.api.lifecycle.term_names import TTL_ANNOTATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    DEPLOYMENTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOB_RECORDS,
    JOB_SETS,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_POD_GROUPS,
)
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training.reports import build_path
from trainmaster.api.v1jobs.frameworks import JOB_NAME, MPI, PYTORCH, TENSORFLOW
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.client.http import HttpClient
from trainmaster.controllers.install import SOURCE_HASH
from trainmaster.jobs.models.v1jobs import MPIJob, PyTorchJob, TFJob
from trainmaster.kit.clock import Clock, SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.operator.caching import build_cache
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.mode import OperatorSettings, ProgressSettings, running_operator
from trainmaster.operator.monitoring.telling import tell_end
from trainmaster.operator.names import NAME
from trainmaster.operator.records.installation import NAME as RECORDS
from trainmaster.operator.records.settings import RecordsSettings
from trainmaster.operator.rights import SERVICE_ACCOUNT, Duties
from trainmaster.operator.webhooks.configurations import WebhookPlan, build_configurations
from trainmaster.operator.webhooks.rotation import RotationTimes
from trainmaster.operator.webhooks.serving import WebhookSettings

pytestmark = pytest.mark.kube

KINDS = (PyTorchJob, TFJob, MPIJob)
LONG_AGO = "2020-01-01T00:00:00Z"
LIMIT = 60.0
METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
]
STARTS = 2
PRIORITY = "important"
FOREIGN, FOREIGN_BYTES = 70, 200_000
NEVER_LOST = ("leases", "events", "tokenreviews", "subjectaccessreviews", "clustertrainingruntimes", "secrets")


@pytest.fixture(scope="module")
def audited() -> Iterator[KubeCluster]:
    toolbox = Toolbox()
    for name in (*NEEDED, "kube-scheduler", "jobset", "kwok"):
        if toolbox.find_program(name) is None:
            pytest.skip(toolbox.why_missing(name))
    parts = Parts(jobset=True, nodes=2, complete_ms=3_600_000, unlimited=True, audited=True)
    manifests = json.dumps(build_manifests(Duties(v1_jobs=KINDS, history=True, records=True)))
    with KubeCluster(parts, toolbox=toolbox, manifests=manifests) as cluster:
        coscheduling = toolbox.find_manifest("trainer", "coscheduling.yaml")
        if coscheduling is None:
            pytest.skip(toolbox.why_missing("trainer"))
        cluster.apply(coscheduling.read_text())
        cluster.apply(json.dumps(VOLCANO_PODGROUPS))
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": PRIORITY}}
        cluster.apply(json.dumps({**head, "value": 1000}))
        yield cluster


def play(pod: Object, run: int) -> int:
    """Launchers and ordinary ranks end well; what serves them runs on. Worker 0 of PyTorch fails twice at first."""
    name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
    if labels.get(JOB_NAME) == "torch":
        return -1 if name != "torch-worker-0" else 137 if run < 2 else 0
    if labels.get(JOB_NAME) == "mpijob" or labels.get(JOBSET_NAME) == "mpi":
        return 0 if "-launcher" in name else -1
    is_server = JOBSET_NAME not in labels and labels.get(REPLICA_TYPE) != "worker"
    return -1 if is_server or labels.get(JOBSET_NAME) == "endless" else 0


@dataclass
class GatedNode(KwokNode):
    """What would succeed runs until the gate is opened."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    failures: Counter[str] = field(default_factory=Counter)

    async def end(self, client: Client, clock: Clock, pod: Object, run: int, moment: str) -> None:
        name = pod["metadata"]["name"]
        if self.script(pod, self.failures[name]) > 0:
            before = self.failures[name]
            self.failures[name] += 1
            await super().end(client, clock, pod, before, moment)
            return
        await self.gate.wait()
        await super().end(client, clock, pod, self.failures[name], moment)


@asynccontextmanager
async def closing(client: HttpClient) -> AsyncIterator[HttpClient]:
    try:
        yield client
    finally:
        await client.close()


@dataclass
class Scene:
    """An operator with rights of its own, and what its jobs live on."""

    cluster: KubeCluster
    client: HttpClient
    node: GatedNode
    proxy: Proxy
    duties: Duties
    namespaces: tuple[str, str]
    token: str = ""
    lost: set[tuple[str, str]] = field(default_factory=set)

    @property
    def namespace(self) -> str:
        return self.namespaces[0]

    @asynccontextmanager
    async def operating(self, settings: OperatorSettings) -> AsyncIterator[None]:
        config = make_config(self.cluster, self.proxy.port, self.token)
        client = HttpClient(config, user_agent="operator/1", observe=self.lose_answer)
        try:
            async with running_operator(client, settings, clock=SystemClock(), ids=SystemIds()):
                yield
        finally:
            await client.close()

    def lose_answer(self, method: str, path: str, code: int) -> None:
        """The first to each kind of write."""
        parts = path.split("/")
        if method in ("GET", "WATCH") or code >= 300 or "namespaces" not in parts:
            return
        kind = (method, parts[parts.index("namespaces") + 2])
        if kind[1] not in NEVER_LOST and kind not in self.lost:
            self.lost.add(kind)
            raise StatusError(504, "Timeout", "the answer was lost")

    async def create(self, gvr: GVR, name: str, obj: Object, **labels: str) -> None:
        meta = {**obj.get("metadata", {}), "name": name, "namespace": self.namespace}
        await self.client.create(gvr, {**obj, "metadata": meta}, self.namespace)

    async def ask_create(self, gvr: GVR, obj: Object) -> Object | StatusError:
        """What the server would answer."""
        meta = {**obj["metadata"], "namespace": self.namespace}
        try:
            return await self.client.create(
                gvr, {**obj, "metadata": meta}, self.namespace, options=WriteOptions(dry_run=True)
            )
        except StatusError as error:
            return error

    async def patch(self, gvr: GVR, name: str, patch: Object) -> None:
        await self.client.patch(gvr, name, PatchType.MERGE, patch, self.namespace)

    async def wait(self, gvr: GVR, name: str, check: Callable[[Object], Any] = bool) -> Object:
        async def look() -> Object | None:
            try:
                found = await self.client.get(gvr, name, self.namespace)
            except NotFound:
                return None
            return found if check(found) else None

        found: Object = await wait_for(look, f"{gvr.plural} {name}")
        return found

    async def wait_gone(self, gvr: GVR, name: str) -> None:
        async def look() -> bool:
            try:
                await self.client.get(gvr, name, self.namespace)
            except NotFound:
                return True
            return False

        await wait_for(look, f"{gvr.plural} {name} is deleted")


async def wait_for(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    try:
        async with asyncio.timeout(LIMIT):
            while not (found := await look()):
                await asyncio.sleep(0.05)
            return found
    except TimeoutError:
        raise AssertionError(f"{what}: not as wanted after {LIMIT:g} s") from None


@asynccontextmanager
async def open_scene(cluster: KubeCluster, *, listed: bool) -> AsyncIterator[Scene]:
    port = cluster.ports["kube-apiserver"]
    client = HttpClient(make_config(cluster, port), user_agent="test/1")
    suffix = SystemIds().suffix(6)
    first, second, own = (f"rights-{suffix}-{part}" for part in ("a", "b", "system"))
    node = GatedNode(play)
    try:
        for name in (first, second, own):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        namespaces = (first, second) if listed else ()
        name = f"operator-{suffix}"
        duties = Duties(False, KINDS, namespaces, history=True, records=True, own_namespace=own, name=name)
        async with Scope("rights") as scope, Proxy(port).running() as proxy:
            scope.spawn_forever(node.run(client, SystemClock()), name="rights.node")
            scene = Scene(cluster, client, node, proxy, duties, (first, second))
            scene.token = await install_access(client, duties)
            yield scene
    finally:
        await client.close()


async def prepare(scene: Scene) -> None:
    """What the operator finds at its start: another operator, runtimes of an older release, a runtime of its own."""
    container = {"name": "manager", "image": "kubeflow/training-operator:v1", "args": ["--enable-scheme=xgboostjob"]}
    pod = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [container]}}
    deployment = {
        "kind": "Deployment",
        "spec": {"replicas": 1, "selector": {"matchLabels": {"x": "y"}}, "template": pod},
    }
    await scene.create(DEPLOYMENTS, "training-operator", deployment)
    derived = {"labels": {DERIVED: "true"}, "annotations": {LAST_USED: LONG_AGO}}
    base = {"kind": "TrainingRuntime", "spec": RUNTIME_SPEC}
    await scene.create(TRAINING_RUNTIMES, "derived", {**base, "metadata": derived})
    policies: dict[str, Object] = {"coscheduling": {"coscheduling": {}}, "volcano": {"volcano": {}}}
    for name, policy in policies.items():
        spec = deepcopy(RUNTIME_SPEC)
        pod = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        if name == "volcano":
            # The webhook looks whether it exists.
            pod["priorityClassName"] = PRIORITY
        runtime = {"kind": "TrainingRuntime", "spec": {**spec, "podGroupPolicy": policy}}
        await scene.create(TRAINING_RUNTIMES, name, runtime)


RUNTIME_SPEC: Object = {
    "mlPolicy": {"numNodes": 1, "torch": {}},
    "template": {
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": {
                            "template": {"spec": {"containers": [{"name": "node", "image": "i"}]}},
                        },
                    },
                }
            ]
        }
    },
}


async def age_runtimes(scene: Scene) -> None:
    """One shipped runtime was deleted, and another is of an older release."""
    await scene.client.delete(CLUSTER_TRAINING_RUNTIMES, "jax-distributed")
    older = {"metadata": {"annotations": {SOURCE_HASH: "older"}}}
    await scene.client.patch(CLUSTER_TRAINING_RUNTIMES, "mlx-distributed", PatchType.MERGE, older)


async def submit(scene: Scene) -> None:
    ended: dict[str, Any] = {"ttlSecondsAfterFinished": 1}
    of_namespace = {"kind": "TrainingRuntime"}
    jobs = {
        "mpi": make_trainjob(runtime="deepspeed-distributed", **ended),
        "gang": make_trainjob(runtimeRef={"name": "coscheduling", **of_namespace}, suspend=True, **ended),
        "volcano": make_trainjob(runtimeRef={"name": "volcano", **of_namespace}, **ended),
        "endless": make_trainjob(activeDeadlineSeconds=1),
        "plain": make_trainjob(**ended),
    }
    for name, job in jobs.items():
        await scene.create(TRAIN_JOBS, name, job)
    run_policy = {**ended, "cleanPodPolicy": "All"}
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}
    policy = {"elasticPolicy": elastic, "runPolicy": run_policy}
    await scene.create(PYTORCH.gvr, "torch", make_job(PYTORCH, {"Worker": 2}, "ExitCode", **policy))
    await scene.create(TENSORFLOW.gvr, "tf", make_job(TENSORFLOW, {"PS": 1, "Worker": 1}, runPolicy=run_policy))
    await scene.create(MPI.gvr, "mpijob", make_job(MPI, {"Launcher": 1, "Worker": 1}, runPolicy=run_policy))


async def disturb(scene: Scene) -> None:
    """Strangers change what belongs to the jobs; everything is put right again."""
    await scene.wait(CONFIG_MAPS, "mpi-mpi-hostfile")
    await scene.patch(CONFIG_MAPS, "mpi-mpi-hostfile", {"data": {"hostfile": "elsewhere"}})
    await scene.wait(COSCHEDULING_POD_GROUPS, "gang")
    await scene.wait(VOLCANO_POD_GROUPS, "volcano")
    for gvr, name in ((COSCHEDULING_POD_GROUPS, "gang"), (VOLCANO_POD_GROUPS, "volcano")):
        await scene.wait(JOB_SETS, name)
        await scene.patch(gvr, name, {"spec": {"minMember": 7}})
        await scene.patch(TRAIN_JOBS, name, {"metadata": {"labels": {"noticed": "yes"}}})
        await scene.wait(gvr, name, lambda group: group["spec"]["minMember"] != 7)
    await scene.patch(TRAIN_JOBS, "gang", {"spec": {"suspend": False}})
    await scene.wait(CONFIG_MAPS, "mpi-mpi-hostfile", lambda one: one["data"]["hostfile"] != "elsewhere")
    await scene.wait(ROLES, "mpijob-launcher")
    await scene.patch(ROLES, "mpijob-launcher", {"rules": []})
    await scene.wait(ROLES, "mpijob-launcher", lambda role: role["rules"])
    await scene.wait(ROLE_BINDINGS, "mpijob-launcher")
    await scene.wait(HORIZONTAL_POD_AUTOSCALERS, "torch")
    await scene.patch(HORIZONTAL_POD_AUTOSCALERS, "torch", {"spec": {"maxReplicas": 2}})
    await scene.wait(HORIZONTAL_POD_AUTOSCALERS, "torch", lambda one: one["spec"]["maxReplicas"] == 3)
    await scene.wait(PODS, "torch-worker-1")
    await scene.patch(PODS, "torch-worker-1", {"metadata": {"labels": {REPLICA_TYPE: "stranger"}}})
    await scene.wait(PODS, "torch-worker-1", lambda pod: pod["metadata"]["labels"][REPLICA_TYPE] == "worker")
    await scene.wait(SERVICES, "tf-ps-0")
    await scene.patch(SERVICES, "tf-ps-0", {"metadata": {"ownerReferences": None}})
    await scene.wait(SERVICES, "tf-ps-0", lambda one: one["metadata"].get("ownerReferences"))
    for suspend in (True, False):
        await scene.patch(PYTORCH.gvr, "torch", {"spec": {"runPolicy": {"suspend": suspend}}})
        await (scene.wait_gone if suspend else scene.wait)(HORIZONTAL_POD_AUTOSCALERS, "torch")
    await scene.wait_gone(JOB_SETS, "endless")


async def report(scene: Scene, url: str) -> None:
    found = await scene.wait(CONFIG_MAPS, "plain-tls-config")

    async def find_pod() -> Object | None:
        pods = (await scene.client.list(PODS, scene.namespace)).items
        return next((pod for pod in pods if pod["metadata"]["name"].startswith("plain-node-0-0")), None)

    pod = await wait_for(find_pod, "a Pod")
    token = await issue(scene.client, pod, "plain")
    moment = {"lastUpdatedTime": "2100-01-31T12:00:00Z"}
    content = {"trainerStatus": {"progressPercentage": 42, **moment}}
    target = url + build_path(scene.namespace, "plain")

    async def is_taken() -> bool:
        # Its Pod may not be in the cache yet.
        return (await ask(target, found["data"]["ca.crt"], token, content))[0] == 200

    await wait_for(is_taken, "the report")


async def wait_until_gone(scene: Scene) -> None:
    await scene.client.delete(TRAIN_JOBS, "endless", scene.namespace)

    async def are_gone() -> bool:
        kinds = (TRAIN_JOBS, *(model.gvr for model in KINDS))
        found = [one for gvr in kinds for one in (await scene.client.list(gvr, scene.namespace)).items]
        return not found

    await wait_for(are_gone, "all jobs are deleted")

    async def is_derived_gone() -> bool:
        found = (await scene.client.list(TRAINING_RUNTIMES, scene.namespace)).items
        return {one["metadata"]["name"] for one in found} == {"coscheduling", "volcano"}

    await wait_for(is_derived_gone, "the derived runtime is deleted")


@contextmanager
def installed_webhooks(scene: Scene) -> Iterator[WebhookSettings]:
    """With a certificate that is to be replaced as soon as it is made."""
    port, own = free_port(), scene.duties.own_namespace
    user = f"system:serviceaccount:{own}:{scene.duties.name}"
    plan = WebhookPlan(user, url=f"https://127.0.0.1:{port}", namespaces=scene.namespaces, v1_jobs=KINDS)
    scene.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": build_configurations(plan)}))
    rotation = RotationTimes(days=5, renew_days=10)
    try:
        yield WebhookSettings(own, ("127.0.0.1",), "127.0.0.1", port, rotation=rotation)
    finally:
        for kind in ("mutating", "validating"):
            scene.cluster.kubectl("delete", f"{kind}webhookconfiguration", NAME)


@contextmanager
def installed_records(scene: Scene) -> Iterator[RecordsSettings]:
    """With a certificate that is to be replaced as soon as it is made, too."""
    port, own = free_port(), scene.duties.own_namespace
    install(scene.cluster, own, port)
    names = (f"{NAME}.{own}.svc",)
    try:
        yield RecordsSettings(own, names, "127.0.0.1", port, rotation=RotationTimes(days=5, renew_days=10))
    finally:
        scene.cluster.kubectl("delete", "apiservice", RECORDS)


async def read_records(scene: Scene) -> None:
    async def are_served() -> bool:
        try:
            return bool((await scene.client.list(JOB_RECORDS, scene.namespace)).items)
        except StatusError as error:
            assert error.code in (404, 503), error
            return False

    await wait_for(are_served, "the records")


async def await_webhooks(scene: Scene) -> None:
    """The leader tells the API server its CA, in both configurations. Until the API server has seen these, it accepts
    what the one refuses, and lacks what the other fills in."""
    misnamed = make_job(TENSORFLOW, {"Worker": 1})
    misnamed["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "other"
    for gvr, refused in ((TRAIN_JOBS, make_trainjob(runtime="missing")), (TENSORFLOW.gvr, misnamed)):

        async def is_refused(gvr: GVR = gvr, refused: Object = refused) -> bool:
            return "denied the request" in str(await scene.ask_create(gvr, refused))

        await wait_for(is_refused, f"the validating webhook of {gvr.plural}")

    async def is_filled_in() -> bool:
        answer = await scene.ask_create(TRAIN_JOBS, make_trainjob(suspend=True, ttlSecondsAfterFinished=5))
        return isinstance(answer, dict) and TTL_ANNOTATION in answer["metadata"].get("annotations", {})

    await wait_for(is_filled_in, "the defaulting webhook")


async def use_volcano(scene: Scene, settings: OperatorSettings) -> None:
    """With Volcano as the scheduler a v1 job that is suspended loses its PodGroup. Its status server has a certificate
    for a name that the next start replaces."""
    progress = ProgressSettings("https://localhost:1", settings.lease_namespace, "127.0.0.1", free_port())
    async with scene.operating(replace(settings, gang_scheduler="volcano", progress=progress)):
        await scene.create(TENSORFLOW.gvr, "queued", make_job(TENSORFLOW, {"Worker": 1}))
        await scene.wait(VOLCANO_POD_GROUPS, "queued")
        await scene.patch(TENSORFLOW.gvr, "queued", {"spec": {"runPolicy": {"suspend": True}}})
        await scene.wait_gone(VOLCANO_POD_GROUPS, "queued")
        await scene.client.delete(TENSORFLOW.gvr, "queued", scene.namespace)


async def complain(scene: Scene, settings: OperatorSettings) -> None:
    """As an operator that cannot start, and then cannot again."""
    config = make_config(scene.cluster, scene.proxy.port, scene.token)
    async with closing(HttpClient(config, user_agent="operator/1")) as client:
        for _ in range(2):
            await tell_end(client, settings.about, "port 8081 is taken: choose another one", SystemClock())
    (event,) = (await scene.client.list(EVENTS, settings.lease_namespace)).items
    assert (event["reason"], event["count"]) == ("OperatorEnded", 2)


@pytest.mark.parametrize("listed", [False, True], ids=["all namespaces", "a list of namespaces"])
def test_nothing_is_refused_and_no_right_is_too_much(audited: KubeCluster, tmp_path: Path, listed: bool) -> None:
    async def main() -> None:
        async with open_scene(audited, listed=listed) as scene:
            await prepare(scene)
            port = free_port()
            settings = OperatorSettings(
                scene.duties.namespaces,
                scene.duties.own_namespace,
                history=tmp_path,
                v1_jobs=KINDS,
                gang_scheduler="default-scheduler",
            )
            await complain(scene, settings)
            await use_volcano(scene, settings)
            await age_runtimes(scene)
            progress = ProgressSettings(f"https://127.0.0.1:{port}", settings.lease_namespace, "127.0.0.1", port)
            with installed_webhooks(scene) as webhooks, installed_records(scene) as records:
                async with scene.operating(replace(settings, progress=progress, webhooks=webhooks, records=records)):
                    await await_webhooks(scene)
                    await submit(scene)
                    await report(scene, progress.url)
                    await disturb(scene)
                    scene.node.gate.set()
                    await wait_until_gone(scene)
                    await read_records(scene)
            requests = Requests(audited, scene.duties)
            assert requests.list_refused() == []
            assert requests.list_unused() == []
            places = len(scene.duties.namespaces) or 1
            for gvr in (TRAIN_JOBS, JOB_SETS, CONFIG_MAPS, *(model.gvr for model in KINDS)):
                assert requests.count_lists(gvr) == STARTS * places, f"{gvr.plural} are listed once at each start"

    asyncio.run(main())


def test_it_may_not_read_secrets_nor_touch_what_belongs_to_others(audited: KubeCluster) -> None:
    async def main() -> None:
        async with closing(HttpClient(make_config(audited, audited.ports["kube-apiserver"]))) as client:
            allowed = [
                Right("", "trainer.kubeflow.org", "trainjobs", "list"),
                Right("", "", "secrets", "create"),
            ]
            refused = [
                (Right("", "", "secrets", verb), namespace)
                for verb in ("get", "list", "watch", "update", "patch", "delete")
                for namespace in ("", "default", "kube-system", "trainmaster-system")
            ]
            leases = [Right("", "coordination.k8s.io", "leases", verb) for verb in ("create", "update", "delete")]
            refused += [(right, "kube-system") for right in leases]
            assert [await may(client, SERVICE_ACCOUNT, right) for right in allowed] == [True, True]
            assert [pair for pair in refused if await may(client, SERVICE_ACCOUNT, *pair)] == []

    asyncio.run(main())


def test_config_maps_of_others_cost_little_to_read_and_to_keep(audited: KubeCluster) -> None:
    """A tenth of what docs/operator.md promises: 700 of them, 1 MB read, 5 MB of memory."""

    async def fill(scene: Scene) -> None:
        name = scene.namespace
        text = "x" * FOREIGN_BYTES
        for number in range(FOREIGN):
            obj = {"kind": "ConfigMap", "metadata": {"name": f"foreign-{number}"}, "data": {"text": text}}
            await scene.client.create(CONFIG_MAPS, obj, name)

    async def measure(scene: Scene) -> tuple[int, int]:
        """(bytes read, bytes of memory) of a cache of all ConfigMaps."""
        before = scene.proxy.received
        config = make_config(audited, scene.proxy.port, scene.token)
        async with closing(HttpClient(config)) as client:
            tracemalloc.start()
            cache = build_cache(
                client,
                [CONFIG_MAPS],
                namespaces=scene.duties.namespaces,
                optional=(),
                all_pods=False,
                clock=SystemClock(),
                ids=SystemIds(),
            )
            try:
                async with cache:
                    await cache.wait_synced()
                    gc.collect()
                    return scene.proxy.received - before, tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

    async def main() -> None:
        async with open_scene(audited, listed=True) as scene:
            empty = await measure(scene)
            await fill(scene)
            full = await measure(scene)
        bytes_read, memory = (after - before for before, after in zip(empty, full, strict=True))
        print(f"\n{FOREIGN} foreign ConfigMaps: {bytes_read} bytes read, {memory} bytes of memory")
        assert bytes_read < 100_000 and memory < 500_000

    asyncio.run(main())


def test_who_sets_owner_references_that_block_deletion_needs_the_right_to_finalizers(audited: KubeCluster) -> None:
    """The rights to `/finalizers` are in no request; the API server asks for them in this way."""

    async def main() -> None:
        async with open_scene(audited, listed=True) as scene:
            await scene.create(TRAIN_JOBS, "owner", make_trainjob(suspend=True))
            job = await scene.wait(TRAIN_JOBS, "owner")
            owner = {"apiVersion": job["apiVersion"], "kind": "TrainJob", "blockOwnerDeletion": True}
            owner |= {key: job["metadata"][key] for key in ("name", "uid")}
            meta = {"name": "owned", "namespace": scene.namespace, "ownerReferences": [owner]}
            role = await scene.client.get(ROLES, f"{scene.duties.name}-jobs", scene.namespace)
            kept = [rule for rule in role["rules"] if not rule["resources"][0].endswith("/finalizers")]
            assert len(kept) < len(role["rules"])
            await scene.patch(ROLES, role["metadata"]["name"], {"rules": kept})
            config = make_config(audited, audited.ports["kube-apiserver"], scene.token)
            async with closing(HttpClient(config)) as own:

                async def is_refused() -> bool:
                    try:
                        await own.create(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": meta}, scene.namespace)
                    except StatusError as error:
                        assert "cannot set blockOwnerDeletion" in error.message
                        return True
                    await scene.client.delete(CONFIG_MAPS, "owned", scene.namespace)
                    return False

                # Roles take a moment to come into force.
                await wait_for(is_refused, "the refusal")

    asyncio.run(main())
