"""What a Pod finds when it starts: variables, volumes and environments, with real processes at two levels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.node.bench import Bench, find_status, has_phase, is_over, run
from tests.node.test_images import NAME, list_installed, make_wheel
from trainmaster.api.image_rules import KEY, NAMESPACE
from trainmaster.api.image_rules import NAME as RULES
from trainmaster.api.labels import PACKAGES
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS
from trainmaster.client.contract import PatchType
from trainmaster.shim.protocol import FULL, PLAIN

pytestmark = [pytest.mark.node, pytest.mark.parametrize("level", (PLAIN, FULL))]

MOUNT = "/tm-mounted"
"""A path that no machine has."""


async def put(bench: Bench, gvr: GVR, kind: str, name: str, namespace: str = "default", **body: object) -> Object:
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **body}
    return await bench.client.create(gvr, obj, namespace)


async def put_claim(bench: Bench, directory: Path) -> None:
    """A bound claim; binding is the controllers' work and tested with them."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    spec: Object = {"capacity": size, "accessModes": modes, "hostPath": {"path": str(directory)}}
    await put(bench, PERSISTENT_VOLUMES, "PersistentVolume", "v", "", spec=spec)
    spec = {"accessModes": modes, "resources": {"requests": size}, "volumeName": "v"}
    await put(bench, PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim", "data", spec=spec)
    status = {"status": {"phase": "Bound"}}
    await bench.client.patch(PERSISTENT_VOLUME_CLAIMS, "data", PatchType.MERGE, status, "default", subresource="status")


def mount(*names: str, **fields: object) -> list[Object]:
    return [{"name": name, "mountPath": f"{MOUNT}/{name}", **fields} for name in names]


def test_volumes_are_where_the_pod_mounts_them_and_nowhere_else(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        await put(bench, CONFIG_MAPS, "ConfigMap", "settings", data={"mode": "fast"})
        await put(bench, SECRETS, "Secret", "keys", stringData={"token": "s3cret"})
        await put_claim(bench, tmp_path / "kept")
        volumes = [
            {"name": "cfg", "configMap": {"name": "settings"}},
            {"name": "key", "secret": {"secretName": "keys"}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ]
        script = f"""
        set -e
        echo $(cat {MOUNT}/cfg/mode) $(cat {MOUNT}/key/token) $MODE $TOKEN $WHERE
        echo x > {MOUNT}/tmp/scratch; echo kept > {MOUNT}/data/result
        cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo
        """
        env = [
            {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {"name": "WHERE", "value": "at $(MODE)"},
        ]
        main = {"env": env, "volumeMounts": mount("cfg", "key", "tmp", "data")}
        async with bench.running_agent(level=level) as agent:
            await bench.create(script, main=main, volumes=volumes, automountServiceAccountToken=True)
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "fast s3cret fast s3cret at fast\ndefault\n"
            assert not os.path.lexists(MOUNT)
            said = await bench.list_events("Approximated")
            assert any(f"{MOUNT}/cfg became" in text for text in said) is (level == PLAIN)
            await bench.remove()
            await bench.wait_until(lambda: not (bench.root / pod["metadata"]["uid"]).exists())
        assert (tmp_path / "kept" / "result").read_text() == "kept\n"

    run(tmp_path, test)


def test_a_container_waits_for_what_is_missing_and_says_so(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        main = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
        async with bench.running_agent(level=level) as agent:
            await bench.create("echo $MODE", main=main)
            pod = await bench.wait_for(
                lambda pod: (
                    "waiting" in (find_status(pod).get("state") or {})
                    and find_status(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
                )
            )
            assert find_status(pod)["state"]["waiting"]["message"] == 'configmap "settings" not found'
            await put(bench, CONFIG_MAPS, "ConfigMap", "settings", data={"MODE": "fast"})
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "fast\n"
            assert 'Error: configmap "settings" not found' in await bench.list_events("Failed")
            await bench.remove()

    run(tmp_path, test)


def test_a_changed_config_map_reaches_the_running_program(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        await put(bench, CONFIG_MAPS, "ConfigMap", "settings", data={"mode": "old"})
        script = f"echo begun; until grep -q new {MOUNT}/cfg/mode; do sleep 0.02; done; cat {MOUNT}/cfg/mode"
        volumes = [{"name": "cfg", "configMap": {"name": "settings"}}]
        async with bench.running_agent(level=level) as agent:
            await bench.create(script, main={"volumeMounts": mount("cfg")}, volumes=volumes)
            await bench.wait_for(has_phase("Running"))
            await bench.client.patch(CONFIG_MAPS, "settings", PatchType.MERGE, {"data": {"mode": "new"}}, "default")
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "begun\nnew\n"
            await bench.remove()

    run(tmp_path, test)


def test_a_new_control_plane_keeps_the_volumes_of_running_pods_current(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        await put(bench, CONFIG_MAPS, "ConfigMap", "settings", data={"mode": "old"})
        script = f"until grep -q new {MOUNT}/cfg/mode; do sleep 0.02; done; cat {MOUNT}/cfg/mode"
        volumes = [{"name": "cfg", "configMap": {"name": "settings"}}]
        async with bench.running_agent(level=level):
            await bench.create(script, main={"volumeMounts": mount("cfg")}, volumes=volumes)
            await bench.wait_for(has_phase("Running"))
        async with bench.running_agent(level=level) as agent:
            await bench.client.patch(CONFIG_MAPS, "settings", PatchType.MERGE, {"data": {"mode": "new"}}, "default")
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "new\n"
            await bench.remove()

    run(tmp_path, test)


def test_the_initializer_fills_the_volume_before_the_program_starts(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        first: Object = {
            "name": "dataset-initializer",
            "image": "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0",
            "env": [{"name": "STORAGE_URI", "value": "file:///usr/share/zoneinfo/Arctic"}],
            "volumeMounts": [{"name": "w", "mountPath": "/workspace"}],
        }
        main = {"volumeMounts": [{"name": "w", "mountPath": "/workspace", "readOnly": True}]}
        async with bench.running_agent(level=level) as agent:
            await bench.create(
                "ls /workspace/dataset", main=main, initContainers=[first], volumes=[{"name": "w", "emptyDir": {}}]
            )
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "Longyearbyen\n", await bench.read_log(agent, pod, first["name"])
            assert any("our own initializer" in text for text in await bench.list_events("Approximated"))
            await bench.remove()
        assert not os.path.exists("/workspace/dataset")

    run(tmp_path, test)


def test_a_job_may_install_packages_for_itself(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        wheel = make_wheel(tmp_path / "wheels")
        script = (
            f"set -e; pip install -q --no-index {MOUNT}/w/{wheel.name}; tm-sample; python -c 'import {NAME}, orjson'"
        )
        volumes = [{"name": "w", "hostPath": {"path": str(wheel.parent), "type": "Directory"}}]
        async with bench.running_agent(level=level) as agent:
            await bench.create(script, main={"volumeMounts": mount("w", readOnly=True)}, volumes=volumes)
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "script 1.0\n"
            await bench.remove()
        assert list_installed(sys.prefix) == []

    (tmp_path / "wheels").mkdir()
    run(tmp_path, test)


def test_packages_that_can_never_be_installed_end_the_pod_with_the_reason(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        missing = str(tmp_path / "nothing.whl")
        async with bench.running_agent(level=level):
            await bench.create("echo ran", metadata={"annotations": {PACKAGES: missing}})
            pod = await bench.wait_for(is_over)
            assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "InstallationFailed")
            assert pod["status"]["message"] == f"cannot install {missing}: there is no {missing} on this machine"
            await bench.remove()

    run(tmp_path, test)


def test_an_image_without_a_rule_waits_where_rules_are_strict(tmp_path: Path, level: str) -> None:
    async def test(bench: Bench) -> None:
        await put(bench, CONFIG_MAPS, "ConfigMap", RULES, NAMESPACE, data={KEY: "strict: true"})
        async with bench.running_agent(level=level) as agent:
            await bench.create("echo ran")
            pod = await bench.wait_for(
                lambda pod: (
                    "waiting" in (find_status(pod).get("state") or {})
                    and find_status(pod)["state"]["waiting"]["reason"] == "ErrImagePull"
                )
            )
            assert 'no rule maps image "image:1"' in find_status(pod)["state"]["waiting"]["message"]
            change = {"data": {KEY: "{strict: true, rules: [{image: 'image:*'}]}"}}
            await bench.client.patch(CONFIG_MAPS, RULES, PatchType.MERGE, change, NAMESPACE)
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "ran\n"
            await bench.remove()

    run(tmp_path, test)
