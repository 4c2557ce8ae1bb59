"""The launcher on an in-process API server: reading, making, following changes, renewing tokens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.chain import make_chain
from tests.unit.node.making import make_pod
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS
from trainmaster.api.training.reports import VOLUME, build_audience
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.catalogue import Images, ImageSettings
from trainmaster.node.launch.containers import build_container
from trainmaster.node.launch.contract import LaunchError, Prepared, Site
from trainmaster.node.launch.launcher import Launcher, LaunchSettings
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


class Bench:
    def __init__(self, cluster: Cluster, root: Path, **settings: Any) -> None:
        self.cluster, self.client, self.root = cluster, cluster.client, root
        self.exceeded: list[str] = []
        images = Images(cluster.client, ImageSettings(root / "environments", sys.prefix, root / "gangs"))
        self.launcher = Launcher(
            cluster.client,
            cluster.clock,
            LaunchSettings(root / "claims", **settings),
            images,
            lambda uid, text: self.exceeded.append(text),
        )

    async def create(self, *containers: Object, **spec: Any) -> Object:
        pod = make_pod(*containers or ({},), **spec)
        pod["metadata"] = {"name": "p", "namespace": "default", "labels": {"team": "a"}}
        return await self.client.create(PODS, pod, "default")

    async def prepare(self, pod: Object) -> Prepared:
        return await self.launcher.prepare(Pod(pod), Site(str(self.root / "pod")))

    async def put(self, name: str = "settings", **data: str) -> None:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await self.client.create(CONFIG_MAPS, made, "default")

    def read(self, volume: str, name: str) -> str:
        place = volume if volume in ("kube-api-access", VOLUME) else f"volumes/{volume}"
        return (self.root / "pod" / place / name).read_text()


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Bench(cluster, tmp_path, **settings))

    run_virtual(main())


def read_claims(token: str) -> Object:
    import base64

    body = token.split(".")[1]
    claims: Object = orjson.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims


MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "command": ["/bin/sh"]}
MEMORY_FULL = "Usage of EmptyDir volumes of medium Memory exceeds the memory limit 1Mi. "
SHOWN = {"volumes": [{"name": "v", "configMap": {"name": "settings"}}]}


def test_a_pod_waits_for_a_config_map_and_starts_when_it_is_there(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        pod = await bench.create(MOUNTED, **SHOWN)
        with pytest.raises(LaunchError) as caught:
            await bench.prepare(pod)
        assert caught.value.reason == "FailedMount"
        assert caught.value.retry
        assert caught.value.message == 'MountVolume.SetUp failed for volume "v" : configmap "settings" not found'
        await bench.put(a="1")
        await bench.prepare(pod)
        assert bench.read("v", "a") == "1"

    run(tmp_path, test)


def test_a_container_waits_for_a_variables_config_map_alone(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        pod = await bench.create({"envFrom": [{"configMapRef": {"name": "settings"}}], "command": ["/bin/sh"]})
        prepared = await bench.prepare(pod)
        with pytest.raises(LaunchError, match='configmap "settings" not found'):
            build_container(Pod(pod), "node", 0, prepared)
        await bench.put(A="1")
        spec, _ = build_container(Pod(pod), "node", 0, await bench.prepare(pod))
        assert spec.env["A"] == "1"

    run(tmp_path, test)


def test_volumes_of_adopted_pods_are_taken_over_after_the_pods_are_found(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.put(a="1")
        pod = await bench.create(MOUNTED, **SHOWN)
        async with bench.launcher.running():
            bench.launcher.adopt(Pod(pod), Site(str(bench.root / "pod")))
            await asyncio.sleep(0.9)
            assert not (bench.root / "pod").exists()
            await asyncio.sleep(0.2)
            assert bench.read("v", "a") == "1"
            await bench.client.patch(CONFIG_MAPS, "settings", PatchType.MERGE, {"data": {"a": "2"}}, "default")
            await asyncio.sleep(0.2)
            assert bench.read("v", "a") == "2", "it is updated from now on"

    run(tmp_path, test)


def test_changed_config_maps_secrets_and_labels_reach_running_pods(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.put(a="1")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"k": "1"}}
        await bench.client.create(SECRETS, secret, "default")
        items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
        more = [{"name": "s", "secret": {"secretName": "keys"}}, {"name": "d", "downwardAPI": {"items": items}}]
        pod = await bench.create(MOUNTED, volumes=[*SHOWN["volumes"], *more])
        async with bench.launcher.running():
            await bench.prepare(pod)
            await bench.client.patch(CONFIG_MAPS, "settings", PatchType.MERGE, {"data": {"a": "2"}}, "default")
            await bench.client.patch(SECRETS, "keys", PatchType.MERGE, {"stringData": {"k": "2"}}, "default")
            change = {"metadata": {"labels": {"team": "b"}}}
            pod = await bench.client.patch(PODS, "p", PatchType.MERGE, change, "default")
            await bench.launcher.update(Pod(pod))
            await asyncio.sleep(1)
            assert bench.read("v", "a") == "2"
            assert bench.read("s", "k") == "2"
            assert bench.read("d", "labels") == 'team="b"'

    run(tmp_path, test)


def test_a_deleted_config_map_leaves_what_running_pods_see(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.put(a="1")
        pod = await bench.create(MOUNTED, **SHOWN)
        async with bench.launcher.running():
            await bench.prepare(pod)
            await bench.client.delete(CONFIG_MAPS, "settings", "default")
            await asyncio.sleep(1)
            assert bench.read("v", "a") == "1"

    run(tmp_path, test)


def test_every_pod_gets_a_token_bound_to_it_and_renewed_in_time(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        pod = await bench.create(automountServiceAccountToken=None)
        async with bench.launcher.running():
            prepared = await bench.prepare(pod)
            assert prepared.volumes["kube-api-access"].live
            first = bench.read("kube-api-access", "token")
            claims = read_claims(first)
            assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]
            assert claims["sub"] == "system:serviceaccount:default:default"
            assert bench.read("kube-api-access", "namespace") == "default"
            assert "BEGIN CERTIFICATE" in bench.read("kube-api-access", "ca.crt")
            await asyncio.sleep(2800)
            assert bench.read("kube-api-access", "token") == first
            await asyncio.sleep(200)
            assert bench.read("kube-api-access", "token") != first

    run(tmp_path, test)


def test_the_token_for_reports_is_for_its_job_alone_and_renewed_in_time(tmp_path: Path) -> None:
    """An hour, as the TrainJob controller asks for; readers of one file at a time need no links."""

    async def test(bench: Bench) -> None:
        audience = build_audience("default", "a")
        token = {"audience": audience, "expirationSeconds": 3600, "path": "token"}
        ca = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        sources = [{"serviceAccountToken": token}, {"configMap": ca}]
        volume = {"name": VOLUME, "projected": {"sources": sources}}
        pod = await bench.create(automountServiceAccountToken=False, volumes=[volume])
        async with bench.launcher.running():
            await bench.prepare(pod)
            first = bench.read(VOLUME, "token")
            claims = read_claims(first)
            assert (claims["aud"], claims["exp"] - claims["iat"]) == ([audience], 3600)
            assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]
            assert "BEGIN CERTIFICATE" in bench.read(VOLUME, "ca.crt")
            await asyncio.sleep(2800)
            assert bench.read(VOLUME, "token") == first
            await asyncio.sleep(200)
            assert bench.read(VOLUME, "token") != first

    run(tmp_path, test)


@pytest.mark.parametrize("where", ["pod", "account"])
def test_a_pod_or_its_account_may_decline_the_token(tmp_path: Path, where: str) -> None:
    async def test(bench: Bench) -> None:
        if where == "account":
            change = {"automountServiceAccountToken": False}
            await bench.client.patch(SERVICE_ACCOUNTS, "default", PatchType.MERGE, change, "default")
            pod = await bench.create()
        else:
            pod = await bench.create(automountServiceAccountToken=False)
        assert (await bench.prepare(pod)).volumes == {}

    run(tmp_path, test)


def test_an_overfull_empty_dir_is_reported(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        pod = await bench.create(MOUNTED, volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}])
        async with bench.launcher.running():
            await bench.prepare(pod)
            await asyncio.sleep(15)
            assert bench.exceeded == []
            (tmp_path / "pod" / "volumes" / "v" / "big").write_bytes(b"x" * 100_000)
            await asyncio.sleep(15)
            assert bench.exceeded[0] == 'Usage of EmptyDir volume "v" exceeds the limit "1Ki". '

    run(tmp_path, test)


def test_memory_volumes_beyond_the_pods_memory_are_reported(tmp_path: Path) -> None:
    """Where no control group counts them, nobody else would."""

    async def test(bench: Bench) -> None:
        limited = {**MOUNTED, "resources": {"limits": {"memory": "1Mi"}}}
        pod = await bench.create(limited, volumes=[{"name": name, "emptyDir": {"medium": "Memory"}} for name in "vw"])
        async with bench.launcher.running():
            volumes = (await bench.prepare(pod)).volumes
            for name, reports in (("v", []), ("w", [MEMORY_FULL])):
                Path(volumes[name].source, "big").write_bytes(b"x" * 700_000)
                await asyncio.sleep(15)
                assert bench.exceeded[:1] == reports
        await bench.launcher.release(Pod(pod))

    run(tmp_path, test)


def test_preparing_again_after_a_restart_gives_the_same(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.put(a="1")
        pod = await bench.create(MOUNTED, **SHOWN)
        first = await bench.prepare(pod)
        again = await Bench(bench.cluster, tmp_path).prepare(pod)
        assert again.volumes == first.volumes
        assert again.images == first.images
        await bench.launcher.release(Pod(pod))

    run(tmp_path, test)


def test_the_directory_of_a_gang_goes_with_its_last_pod(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        made = []
        chain = await make_chain(bench.client)
        gang = tmp_path / "gangs" / chain.jobset["metadata"]["uid"]
        for name in ("a", "b"):
            pod = make_pod({}, volumes=[{"name": "mpi-ssh-auth", "emptyDir": {}}])
            pod["metadata"] = {"name": name, "namespace": "default", **chain.metadata()}
            made.append(await bench.client.create(PODS, pod, "default"))
            await bench.prepare(made[-1])
        assert gang.is_dir()
        for pod, left in zip(made, (True, False), strict=True):
            await bench.client.delete(PODS, pod["metadata"]["name"], "default", DeleteOptions(grace_seconds=0))
            await bench.launcher.release(Pod(pod))
            assert gang.is_dir() is left

    run(tmp_path, test)


def test_a_pod_that_only_says_it_belongs_to_a_gang_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        chain = await make_chain(bench.client)
        pod = make_pod({}, volumes=[{"name": "mpi-ssh-auth", "emptyDir": {}}])
        pod["metadata"] = {"name": "stray", "namespace": "default", "labels": chain.labels}
        made = await bench.client.create(PODS, pod, "default")
        await bench.prepare(made)
        assert [folder.name for folder in (tmp_path / "gangs").iterdir()] == [made["metadata"]["uid"]]

    run(tmp_path, test)


def test_on_the_plain_level_clients_find_the_server_through_a_kubeconfig(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        pod = await bench.create({"command": ["/bin/sh"]})
        prepared = await bench.launcher.prepare(Pod(pod), Site(str(tmp_path / "pod"), api=("127.0.0.1", 6443)))
        spec, _ = build_container(Pod(pod), "node", 0, prepared)
        config = orjson.loads(Path(spec.env["KUBECONFIG"]).read_bytes())
        assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
        assert Path(config["users"][0]["user"]["tokenFile"]).read_text() == bench.read("kube-api-access", "token")
        assert Path(spec.env["KUBECONFIG"]).stat().st_mode & 0o077 == 0

    run(tmp_path, test)
