"""The operator's webhooks on a real API server refuse with the texts of the embedded server, and accept what it
accepts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from tests.flow.stage import Stage, make_trainjob
from tests.flow.test_v1_flow import make_job
from tests.golden import cases as golden
from tests.kube.cluster import KubeCluster, choose_program
from tests.kube.processes import free_port
from tests.seam.admission_cases import CASES, Case, gvr_of
from tests.seam.admission_site import AdmissionSite
from tests.seam.stage import KwokNode, make_config
from tests.seam.test_v1 import make_identity
from tests.support.prepared import copy_runtimes
from trainmaster.api import tenancy
from trainmaster.api.declaring import catalogue
from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, TTL_ANNOTATION
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    SECRETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.client.contract import ActingIdentity, Client, PatchType, WriteOptions
from trainmaster.client.http import HttpClient
from trainmaster.jobs.models.v1jobs import MODELS
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.kit.ids import SystemIds
from trainmaster.kit.scopes import Scope
from trainmaster.operator.names import NAME
from trainmaster.operator.webhooks.rotation import SECRET
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.kube

T = TypeVar("T")
TENANT = ActingIdentity("ann", groups=("system:authenticated",))
_DENIED = re.compile(r'^admission webhook "[^"]+" denied the request: ')
_TIME = re.compile(r'"time":"[^"]*"')
_CONFIGURATIONS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)


@dataclass(frozen=True)
class Answer:
    """What a server says to a write, in a form that does not depend on the server."""

    refusal: str
    """Code, reason and message; "" if it was accepted."""
    warnings: tuple[str, ...]
    from_webhook: bool
    stored: Any = None


async def open_namespace(cluster: KubeCluster, client: HttpClient) -> str:
    """A tenant's, who may write everything in it."""
    name = f"adm-{SystemIds().suffix(8)}"
    labels = {tenancy.TENANT: "adm"}
    meta = {"name": name, "labels": labels}
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    cluster.kubectl("create", "rolebinding", "ann", "-n", name, "--clusterrole=cluster-admin", "--user=ann")
    with_policy = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}}
    with contextlib.suppress(AlreadyExists):
        await client.create(NAMESPACES, with_policy)
    return name


def connect(cluster: KubeCluster) -> HttpClient:
    return HttpClient(make_config(cluster, cluster.ports["kube-apiserver"]), user_agent="test/1")


@pytest.fixture(scope="module")
def site(seam_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdmissionSite]:
    """With the operator and its webhooks for all kinds."""

    async def prepare() -> AdmissionSite:
        client = connect(seam_cluster)
        try:
            found = AdmissionSite(
                seam_cluster,
                await open_namespace(seam_cluster, client),
                free_port(),
                make_identity("admission"),
                MODELS,
            )
        finally:
            await client.close()
        return found

    made = asyncio.run(prepare())
    made.install_operator()
    with made.operating(tmp_path_factory.mktemp("admission") / "operator.log"):
        made.install(made.plan)
        try:
            asyncio.run(wait_until_checked(made))
            yield made
        finally:
            made.remove()


async def wait(wanted: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(60):
        while True:
            found = await wanted()
            if found:
                return found
            await asyncio.sleep(0.05)


async def wait_until_checked(site: AdmissionSite) -> None:
    """The API server sees new configurations, and a `caBundle`, a moment after they are written."""
    client = connect(site.cluster)
    try:

        async def is_refused() -> bool:
            answer = await judge(client, Case((make_trainjob(runtime="nowhere"),)), site.namespace)
            return "must be created before" in answer.refusal

        await wait(is_refused)
    finally:
        await client.close()


# ---- one case on one server --------------------------------------------------


async def judge(client: Any, case: Case, namespace: str) -> Answer:
    """Sends the write of the case, after making what it needs; removes everything again."""
    made: list[Object] = []
    actor = client.as_user(TENANT) if case.as_tenant else client
    *before, last = case.objects
    try:
        for obj in before:
            made.append(await create(client, obj, namespace))
        if case.change is None and not case.delete:
            return await say(actor, create(actor, last, namespace), namespace, made)
        made.append(await create(client, last, namespace))
        first = made[0]
        if case.change is not None:
            return await say(actor, change(actor, first, case.change), namespace, made)
        meta = first["metadata"]
        return await say(actor, actor.delete(gvr_of(first), meta["name"], meta.get("namespace", "")), namespace, made)
    finally:
        for obj in reversed(made):
            await remove(client, obj)


async def change(client: Client, obj: Object, edit: Callable[[Object], None]) -> Object:
    """PUT, again if somebody else wrote meanwhile."""
    gvr, meta = gvr_of(obj), obj["metadata"]
    while True:
        wanted = deepcopy(await client.get(gvr, meta["name"], meta.get("namespace", "")))
        edit(wanted)
        try:
            return await client.update(gvr, wanted, meta.get("namespace", ""))
        except StatusError as error:
            if error.reason != "Conflict":
                raise


async def create(client: Client, obj: Object, namespace: str) -> Object:
    meta = dict(obj["metadata"])
    if meta.get("namespace") == "default":
        meta["namespace"] = namespace
    return await client.create(gvr_of(obj), {**obj, "metadata": meta}, meta.get("namespace", ""))


async def say(client: Any, work: Awaitable[Object], namespace: str, made: list[Object]) -> Answer:
    client.warnings.clear()
    refusal, stored = "", None
    try:
        answer = await work
        if answer.get("kind") in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime", "ConfigMap"):
            made.append(answer)
            stored = mask(answer.get("spec"), namespace)
    except StatusError as error:
        refusal = f"{error.code} {error.reason}: {error.message}"
    # Warnings beside a refusal are an API server's own: the embedded server sends none.
    warnings = () if refusal else tuple(sorted(mask(text, namespace) for text in client.warnings))
    head, _, message = refusal.partition(": ")
    plain = _DENIED.sub("", message)
    text = _TIME.sub('"time":"(time)"', mask(f"{head}: {plain}" if refusal else "", namespace))
    return Answer(text, warnings, plain != message, stored)


def mask(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {key: "(time)" if key == "time" else mask(item, namespace) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item, namespace) for item in value]
    if not isinstance(value, str):
        return value
    found = value.replace(f" {namespace}/", " NS/").replace(f"-n {namespace} ", "-n NS ")
    return found.replace(f"namespace {namespace} ", "namespace NS ")


async def remove(client: Any, obj: Object) -> None:
    meta = obj["metadata"]
    try:
        await client.delete(gvr_of(obj), meta["name"], meta.get("namespace", ""))
    except NotFound:
        return
    except StatusError as error:
        assert "in use" in error.message, error
        await client.patch(
            gvr_of(obj),
            meta["name"],
            PatchType.MERGE,
            {"metadata": {"annotations": {"trainmaster.dev/allow-delete-in-use": "true"}}},
            meta.get("namespace", ""),
        )
        await client.delete(gvr_of(obj), meta["name"], meta.get("namespace", ""))


# ---- both servers ------------------------------------------------------------


class _Everything:
    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        return True


async def ask_embedded(work: Callable[[Any, str], Awaitable[T]]) -> T:
    async with running_cluster(store=copy_runtimes(), authorizer=_Everything()) as cluster:
        labels = {"metadata": {"labels": {tenancy.TENANT: "adm"}}}
        await cluster.client.patch(NAMESPACES, "default", PatchType.MERGE, labels)
        return await work(cluster.client, "default")


async def ask_cluster(site: AdmissionSite, work: Callable[[Any, str], Awaitable[T]]) -> T:
    client = connect(site.cluster)
    try:
        return await work(client, site.namespace)
    finally:
        await client.close()


@pytest.fixture(scope="module")
def answers(site: AdmissionSite) -> dict[str, tuple[Answer, Answer]]:
    """Of both servers, embedded first."""

    async def ask(client: Any, namespace: str) -> dict[str, Answer]:
        return {name: await judge(client, case, namespace) for name, case in CASES.items()}

    ours = run_virtual(ask_embedded(ask), limit=86_400)
    theirs = asyncio.run(ask_cluster(site, ask))
    return {name: (ours[name], theirs[name]) for name in CASES}


def level(refusal: str) -> str:
    """Older API servers name the type of a text that a rule of the schema refuses, instead of the text."""
    if choose_program("kube-apiserver") == "kube-apiserver":
        return refusal
    return re.sub(r'Invalid value: "[^"]*": field is immutable', "Invalid value: field is immutable", refusal)


@pytest.mark.parametrize("name", CASES)
def test_both_servers_say_the_same(name: str, answers: dict[str, tuple[Answer, Answer]]) -> None:
    ours, theirs = answers[name]
    case = CASES[name]
    assert (level(theirs.refusal), theirs.warnings) == (level(ours.refusal), ours.warnings)
    assert theirs.stored == ours.stored
    assert case.words in theirs.refusal if case.words else not theirs.refusal, theirs.refusal


def list_golden() -> dict[str, Object]:
    """What upstream was asked to create, and refused or accepted (`tests/golden`)."""
    return {
        f"{version}/{case}": row["object"]
        for version in golden.ALL_VERSIONS
        for case, row in golden.load_refusals(version).items()
        if "object" in row and (row["object"]["apiVersion"], row["object"]["kind"]) in SERVED
    }


SERVED = {(kind.api_version, kind.kind): kind.gvr for kind in catalogue.build().kinds if kind.custom}
GOLDEN = list_golden()


@pytest.fixture(scope="module")
def golden_answers(site: AdmissionSite) -> dict[str, tuple[Answer, Answer]]:
    async def ask(client: Any, namespace: str) -> dict[str, Answer]:
        found = {}
        for name, obj in GOLDEN.items():
            meta = dict(obj["metadata"])
            if meta.get("namespace"):
                meta["namespace"] = namespace
            options = WriteOptions(field_validation="Strict", dry_run=True)
            gvr = SERVED[obj["apiVersion"], obj["kind"]]
            write = client.create(gvr, {**obj, "metadata": meta}, meta.get("namespace", ""), options=options)
            found[name] = await say(client, write, namespace, [])
        return found

    ours = run_virtual(ask_embedded(ask), limit=86_400)
    theirs = asyncio.run(ask_cluster(site, ask))
    return {name: (ours[name], theirs[name]) for name in GOLDEN}


@pytest.mark.parametrize("name", GOLDEN)
def test_both_servers_answer_alike_what_upstream_was_asked(
    name: str, golden_answers: dict[str, tuple[Answer, Answer]]
) -> None:
    """What an API server refuses by the schema alone never reaches a webhook; that texts of schemas are the same is
    what tests/contract looks at."""
    ours, theirs = golden_answers[name]
    if theirs.refusal and not theirs.from_webhook:
        assert ours.refusal, theirs.refusal
        return
    assert (theirs.refusal, theirs.warnings) == (ours.refusal, ours.warnings)


# ---- what is let through, certificates ---------------------------------------


def test_while_no_webhook_answers_jobs_run_are_suspended_resumed_and_deleted(site: AdmissionSite) -> None:
    """Creating one fails at once with one sentence."""

    async def play(client: Client, namespace: str) -> None:
        node = KwokNode(namespace=namespace)
        stage = Stage(client, namespace, node, rest)
        async with Scope("node") as scope:
            scope.spawn_forever(node.run(client, SystemClock()), name="node")
            await stage.submit(make_trainjob(name="waiting", suspend=True, ttlSecondsAfterFinished=1))
            await stage.submit(make_trainjob(name="running", suspend=False, runtime="plain", nodes=1))
            v1_job = make_job(PYTORCH, {"Worker": 1}, runPolicy={"suspend": True})
            v1_job["metadata"]["namespace"] = namespace
            await client.create(PYTORCH.gvr, v1_job, namespace)
            await create(client, CASES["a runtime that nobody uses"].objects[0], namespace)
            await stage.submit(make_trainjob(name="older", suspend=True, annotations={"a": "b"}))
            site.install(replace(site.plan, url=f"https://127.0.0.1:{free_port()}"))
            refusal = await wait(lambda: refuse(client, namespace))
            assert refusal is not None
            assert (refusal.code, refusal.reason) == (500, "InternalError")
            assert "failed calling webhook" in refusal.message and "\n" not in refusal.message
            await check_conditions(client, namespace)
            await stage.edit(TRAIN_JOBS, "running", {"spec": {"suspend": True}})
            await stage.edit(TRAIN_JOBS, "waiting", {"spec": {"suspend": False}, "metadata": {"labels": {"a": "b"}}})
            await wait_until_gone(client, namespace, "waiting")
            for name in ("running", "older"):
                await client.delete(TRAIN_JOBS, name, namespace)

    try:
        asyncio.run(ask_cluster(site, play))
    finally:
        site.install(site.plan)
        asyncio.run(wait_until_checked(site))


def test_a_webhook_that_hangs_fails_a_create_and_what_is_tried_again_succeeds(site: AdmissionSite) -> None:
    """The API server gives up after the seconds in the configuration, with one sentence and a code that tells clients
    to try again: as Kueue does, whose resumes may change more than `spec.suspend`."""

    async def play(client: Client, namespace: str) -> None:
        stage = Stage(client, namespace, KwokNode(namespace=namespace), rest)
        await stage.submit(make_trainjob(name="queued", suspend=True))
        # The kernel accepts connections, and nobody ever says a word.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            site.install(replace(site.plan, url=f"https://127.0.0.1:{silent.getsockname()[1]}"))
            refusal = await wait(lambda: refuse(client, namespace, "context deadline exceeded"))
            assert refusal is not None and "\n" not in refusal.message and "failed calling webhook" in refusal.message
            assert (refusal.code, refusal.reason) == (500, "InternalError")
            seconds = {
                hook["timeoutSeconds"] for gvr in _CONFIGURATIONS for hook in (await client.get(gvr, NAME))["webhooks"]
            }
            assert max(seconds) <= 5
            resumed = {"spec": {"suspend": False, "runtimePatches": [{"manager": "kueue.x-k8s.io/manager"}]}}
            async with Scope("kueue") as scope:
                work = scope.spawn(resume_until_accepted(client, namespace, resumed), name="kueue.resume")
                await asyncio.sleep(0.5)
                assert not work.done()
                site.install(site.plan)
                assert await work > 0
        job = await client.get(TRAIN_JOBS, "queued", namespace)
        assert job["spec"]["suspend"] is False
        await client.delete(TRAIN_JOBS, "queued", namespace)

    try:
        asyncio.run(ask_cluster(site, play))
    finally:
        site.install(site.plan)
        asyncio.run(wait_until_checked(site))


async def rest() -> None:
    return None


async def resume_until_accepted(client: Client, namespace: str, patch: Object) -> int:
    """How often it was refused before. Anything but "try again" is an error."""
    refused = 0
    while True:
        try:
            await client.patch(TRAIN_JOBS, "queued", PatchType.MERGE, patch, namespace)
        except StatusError as error:
            assert error.code == 500 and "failed calling webhook" in error.message, error
            refused += 1
            await asyncio.sleep(0.2)
        else:
            return refused


async def check_conditions(client: Any, namespace: str) -> None:
    """Which writes are sent to a webhook: they fail."""

    async def is_sent(gvr: GVR, name: str, patch: Object) -> bool:
        options = WriteOptions(dry_run=True)
        try:
            await client.patch(gvr, name, PatchType.MERGE, patch, namespace, options=options)
        except StatusError as error:
            assert "failed calling webhook" in error.message, error
            return True
        return False

    ours, others = ({"metadata": {"annotations": {key: "1"}}} for key in (TTL_ANNOTATION, "example.com/note"))
    label = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/kept"]}}
    suspended = {"spec": {"runPolicy": {"suspend": False}}}
    queue = {"metadata": {"labels": {QUEUE_NAME: "team"}}}
    seen = {
        "annotation of ours": await is_sent(TRAIN_JOBS, "running", ours),
        "annotation of others": await is_sent(TRAIN_JOBS, "running", others),
        "labels, finalizers": await is_sent(TRAIN_JOBS, "running", label),
        "TTL": await is_sent(TRAIN_JOBS, "running", {"spec": {"ttlSecondsAfterFinished": 5}}),
        "suspended": await is_sent(TRAIN_JOBS, "running", {"spec": {"suspend": True}}),
        "both": await is_sent(TRAIN_JOBS, "running", {"spec": {"suspend": True, "ttlSecondsAfterFinished": 5}}),
        "queue": await is_sent(TRAIN_JOBS, "running", queue),
        "queue for older shapes": await is_sent(TRAIN_JOBS, "older", queue),
        "runtime's label": await is_sent(TRAINING_RUNTIMES, "own", label),
        "runtime's spec": await is_sent(TRAINING_RUNTIMES, "own", {"spec": {"ttlSecondsAfterFinished": 5}}),
        "v1 suspended": await is_sent(PYTORCH.gvr, "a", suspended),
        "v1 TTL": await is_sent(PYTORCH.gvr, "a", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 5}}}),
        "v1 label": await is_sent(PYTORCH.gvr, "a", label),
    }
    assert {what for what, sent in seen.items() if sent} == {
        "annotation of ours", "TTL", "both", "queue for older shapes", "runtime's spec", "v1 TTL",
    }  # fmt: skip
    with pytest.raises(StatusError, match="failed calling webhook"):
        await client.delete(TRAINING_RUNTIMES, "own", namespace)
    cleaner = client.as_user(ActingIdentity("system:serviceaccount:kube-system:namespace-controller"))
    await cleaner.delete(TRAINING_RUNTIMES, "own", namespace)
    await client.delete(PYTORCH.gvr, "a", namespace)


async def refuse(client: Client, namespace: str, words: str = "") -> StatusError | None:
    """With these words in the refusal."""
    obj = make_trainjob(name="third")
    try:
        await client.create(
            TRAIN_JOBS,
            {**obj, "metadata": {"name": "third"}},
            namespace,
            options=WriteOptions(dry_run=True),
        )
    except StatusError as error:
        return error if words in error.message else None
    return None


async def wait_until_gone(client: Client, namespace: str, name: str) -> None:
    seen: list[Object] = []

    async def is_gone() -> bool:
        try:
            seen.append(await client.get(TRAIN_JOBS, name, namespace))
        except NotFound:
            return True
        return False

    try:
        await wait(is_gone)
    except TimeoutError:
        raise AssertionError(f"still there: {seen[-1]}") from None


def test_terms_that_a_client_drops_come_back(site: AdmissionSite) -> None:
    """Which writes are sent is decided by the conditions; a job whose author says nothing about terms is not."""

    async def play(client: Client, namespace: str) -> None:
        terms: dict[str, Any] = {"ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 60}
        obj = make_trainjob(name="mirrored", suspend=True, **terms)
        made = await client.create(TRAIN_JOBS, {**obj, "metadata": {"name": "mirrored"}}, namespace)
        mirrored = {TTL_ANNOTATION: "5", DEADLINE_ANNOTATION: "60"}
        assert made["metadata"]["annotations"] == mirrored
        dropped = {**made, "spec": {key: value for key, value in made["spec"].items() if key not in terms}}
        again = await client.update(TRAIN_JOBS, dropped, namespace)
        assert (again["spec"], again["metadata"]["annotations"]) == (made["spec"], mirrored)
        changes = {"spec": {"ttlSecondsAfterFinished": 9}}, {"metadata": {"annotations": {TTL_ANNOTATION: "7"}}}
        for patch in changes:
            changed = await client.patch(TRAIN_JOBS, "mirrored", PatchType.MERGE, patch, namespace)
            assert changed["metadata"]["annotations"][TTL_ANNOTATION] == "9"
        removal = {"spec": {"ttlSecondsAfterFinished": None}, "metadata": {"annotations": {TTL_ANNOTATION: None}}}
        removed = await client.patch(TRAIN_JOBS, "mirrored", PatchType.MERGE, removal, namespace)
        assert "ttlSecondsAfterFinished" not in removed["spec"]
        assert removed["metadata"]["annotations"] == {DEADLINE_ANNOTATION: "60"}
        await client.delete(TRAIN_JOBS, "mirrored", namespace)

    asyncio.run(ask_cluster(site, play))


def test_most_answers_were_those_of_webhooks(
    answers: dict[str, tuple[Answer, Answer]], golden_answers: dict[str, tuple[Answer, Answer]]
) -> None:
    refused = {name: theirs for name, (_, theirs) in answers.items() if theirs.refusal}
    by_schema = {"the manager is removed and filled in again"}
    assert {name for name, theirs in refused.items() if not theirs.from_webhook} == by_schema
    assert sum(theirs.from_webhook for _, theirs in golden_answers.values()) > 60


def test_a_bundle_that_somebody_empties_is_filled_again(site: AdmissionSite) -> None:
    async def play(client: Client, namespace: str) -> None:
        wanted = await read_bundles(client)
        for gvr in _CONFIGURATIONS:
            emptied = await client.get(gvr, NAME)
            for hook in emptied["webhooks"]:
                hook["clientConfig"].pop("caBundle")
            await client.update(gvr, emptied)

        async def is_repaired() -> bool:
            return await read_bundles(client) == wanted

        await wait(is_repaired)

    asyncio.run(ask_cluster(site, play))
    asyncio.run(wait_until_checked(site))


async def read_bundles(client: Client) -> set[str]:
    """Of all webhooks; "" if one has none."""
    return {
        hook["clientConfig"].get("caBundle", "")
        for gvr in _CONFIGURATIONS
        for hook in (await client.get(gvr, NAME))["webhooks"]
    }


def count_certificates(bundle: str) -> int:
    return base64.b64decode(bundle).decode().count("BEGIN CERTIFICATE")


def test_no_request_fails_while_the_certificate_is_replaced(site: AdmissionSite) -> None:
    """New connections get the new one; both CAs are trusted meanwhile."""

    async def play(client: HttpClient, namespace: str) -> None:
        before = await asyncio.to_thread(read_served, site.port)
        soon = format_time(SystemClock().now() + timedelta(days=1))
        marks = {"metadata": {"annotations": {"trainmaster.dev/expires": soon}}}
        async with Scope("load") as scope:
            results: list[StatusError | None] = []
            load = scope.spawn(create_again_and_again(client, namespace, results), name="load")
            await client.patch(SECRETS, SECRET, PatchType.MERGE, marks, namespace)
            sizes: set[int] = set()

            async def is_replaced() -> bool:
                sizes.update(map(count_certificates, await read_bundles(client)))
                return await asyncio.to_thread(read_served, site.port) != before and sizes == {1, 2}

            await wait(is_replaced)

            async def is_over() -> bool:
                return list(map(count_certificates, await read_bundles(client))) == [1]

            await wait(is_over)
            load.cancel()
            assert len(results) > 50 and [error for error in results if error is not None] == []

    asyncio.run(ask_cluster(site, play))


async def create_again_and_again(client: Client, namespace: str, results: list[StatusError | None]) -> None:
    """Fifty a second, each in a dry run."""
    async with Scope("creates") as scope:
        for number in range(10_000):
            scope.spawn(create_one(client, namespace, number, results), name="create")
            await asyncio.sleep(0.02)


async def create_one(client: Client, namespace: str, number: int, results: list[StatusError | None]) -> None:
    obj = {**make_trainjob(), "metadata": {"name": f"load-{number}"}}
    try:
        await client.create(TRAIN_JOBS, obj, namespace, options=WriteOptions(dry_run=True))
        results.append(None)
    except StatusError as error:
        results.append(error)


def read_served(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))
