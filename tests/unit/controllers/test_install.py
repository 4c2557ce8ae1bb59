"""The shipped runtimes: installed at start, updated with a release, never overwritten once edited."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.api.status import Conflict, NotFound
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.controllers import install
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

UPSTREAM = Path(__file__).parents[2] / "golden" / "data" / "2.3" / "runtimes.json"
TEXT = dict(install.list_manifests())["plain"]


def run(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(cluster)

    run_virtual(main())


def ship(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(install, "list_manifests", lambda templates: iter([("plain", text)]))


async def get_restarts(cluster: Cluster) -> int:
    runtime = await cluster.client.get(CLUSTER_TRAINING_RUNTIMES, "plain")
    return int(runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"])


@pytest.mark.parametrize(("name", "text"), list(install.list_manifests()))
def test_every_shipped_runtime_restarts_the_gang_and_is_named_like_its_file(name: str, text: str) -> None:
    manifest = install.parse_manifest(text)
    jobset = manifest["spec"]["template"]["spec"]
    assert manifest["metadata"]["name"] == name
    assert manifest["metadata"]["labels"]["trainer.kubeflow.org/framework"]
    assert jobset["failurePolicy"]["maxRestarts"] == 6
    for replicated in jobset["replicatedJobs"]:
        job = replicated["template"]["spec"]
        assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
        assert job["podFailurePolicy"]["rules"] == [
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        ]
    (rule,) = jobset["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"])


def test_these_runtimes_are_shipped() -> None:
    assert [name for name, _ in install.list_manifests()] == [
        "deepspeed-distributed",
        "jax-distributed",
        "mlx-distributed",
        "plain",
        "pytorch-simple",
        "tensorflow-distributed",
        "torch-distributed",
        "torchtune-llama3.2-1b",
        "torchtune-llama3.2-3b",
        "torchtune-qwen2.5-1.5b",
        "xgboost-distributed",
    ]


def _strip(value: Any) -> Any:
    """Without what upstream's typed programs add, and without the fields that restart the gang."""
    if isinstance(value, dict):
        kept = {key: _strip(item) for key, item in value.items() if key not in ("groupName", "replicas", "status")}
        kept = {key: item for key, item in kept.items() if item != {} or key in ("torch", "jax", "xgboost")}
        for name in ("failurePolicy", "backoffLimit", "podFailurePolicy", "restartPolicy"):
            kept.pop(name, None)
        if "image" in kept:
            kept["image"] = kept["image"].removeprefix("ghcr.io/").removeprefix("nvcr.io/")
        if "limits" in kept:
            kept["limits"] = {name: str(amount) for name, amount in kept["limits"].items()}
        return kept
    return [_strip(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("upstream", json.loads(UPSTREAM.read_text()), ids=lambda runtime: runtime["metadata"]["name"])
def test_a_shipped_runtime_is_upstreams_but_for_the_restarts(upstream: Object) -> None:
    ours = install.parse_manifest(dict(install.list_manifests())[upstream["metadata"]["name"]])
    assert _strip(ours["spec"]) == _strip(upstream["spec"])


def test_a_second_start_writes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        before = cluster.store.revision
        await install.install_runtimes(cluster.client)
        assert cluster.store.revision == before

    run(test)


def test_a_new_release_replaces_what_nobody_edited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        ship(monkeypatch, TEXT.replace("maxRestarts: 6", "maxRestarts: 7"))
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 7

    run(test)


def test_an_edited_runtime_is_kept_whatever_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        edit = {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 10}}}}}
        await cluster.client.patch(CLUSTER_TRAINING_RUNTIMES, "plain", PatchType.MERGE, edit)
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 10
        ship(monkeypatch, TEXT.replace("maxRestarts: 6", "maxRestarts: 7"))
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 10

    run(test)


def test_a_runtime_of_the_same_name_that_somebody_made_is_kept() -> None:
    async def test(cluster: Cluster) -> None:
        own = install.parse_manifest(TEXT.replace("maxRestarts: 6", "maxRestarts: 1"))
        await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, own)
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 1

    run(test)


def test_a_deleted_runtime_comes_back() -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        await cluster.client.delete(CLUSTER_TRAINING_RUNTIMES, "plain")
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 6

    run(test)


GITOPS = WriteOptions(field_manager="gitops")


def make_configuration(text: str = TEXT, *, restarts: int = 6) -> Object:
    return install.parse_manifest(text.replace("maxRestarts: 6", f"maxRestarts: {restarts}"))


async def apply(cluster: Cluster, configuration: Object) -> Object:
    """Server-side apply without force, as `kubectl apply --server-side` does."""
    return await cluster.client.patch(
        CLUSTER_TRAINING_RUNTIMES, "plain", PatchType.APPLY, configuration, options=GITOPS
    )


def test_whoever_applies_another_manifest_meets_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        configuration = make_configuration(restarts=3)
        configuration["metadata"]["labels"]["trainer.kubeflow.org/framework"] = "other"
        await apply(cluster, configuration)
        assert await get_restarts(cluster) == 3
        ship(monkeypatch, TEXT.replace("maxRestarts: 6", "maxRestarts: 7"))
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 3
        await apply(cluster, make_configuration(restarts=4))
        assert await get_restarts(cluster) == 4

    run(test)


def test_a_release_leaves_a_runtime_alone_that_somebody_applies_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        await apply(cluster, make_configuration())
        ship(monkeypatch, TEXT.replace("maxRestarts: 6", "maxRestarts: 7"))
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 6

    run(test)


def test_a_release_keeps_the_metadata_of_others_and_can_be_applied_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        marks = {"labels": {"team": "a"}, "annotations": {"note": "b"}, "finalizers": ["example.org/kept"]}
        await cluster.client.patch(CLUSTER_TRAINING_RUNTIMES, "plain", PatchType.MERGE, {"metadata": marks})
        ship(monkeypatch, TEXT.replace("maxRestarts: 6", "maxRestarts: 7"))
        await install.install_runtimes(cluster.client)
        assert await get_restarts(cluster) == 7
        meta = (await cluster.client.get(CLUSTER_TRAINING_RUNTIMES, "plain"))["metadata"]
        assert meta["labels"]["team"] == "a"
        assert meta["annotations"]["note"] == "b"
        assert meta["finalizers"] == ["example.org/kept"]
        await apply(cluster, make_configuration(restarts=3))
        assert await get_restarts(cluster) == 3

    run(test)


def test_runtimes_that_an_earlier_release_installed_can_be_applied_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept the ownership of all their fields."""

    async def test(cluster: Cluster) -> None:
        with monkeypatch.context() as earlier:
            earlier.setattr(install, "release_fields", lambda entries: entries)
            await install.install_runtimes(cluster.client)
        with pytest.raises(Conflict):
            await apply(cluster, make_configuration(restarts=3))
        await install.install_runtimes(cluster.client)
        await apply(cluster, make_configuration(restarts=3))
        assert await get_restarts(cluster) == 3

    run(test)


def test_a_runtime_that_another_operator_creates_at_the_same_time_is_left_to_it() -> None:
    class Slow:
        """A client that does not see what others have just created."""

        def __init__(self, client: Client) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

        async def get(self, gvr: GVR, name: str, namespace: str = "") -> Object:
            raise NotFound(404, "NotFound", name)

    async def test(cluster: Cluster) -> None:
        await install.install_runtimes(cluster.client)
        before = await cluster.client.get(CLUSTER_TRAINING_RUNTIMES, "plain")
        await install.install_runtimes(cast(Client, Slow(cluster.client)))
        assert await cluster.client.get(CLUSTER_TRAINING_RUNTIMES, "plain") == before

    run(test)
