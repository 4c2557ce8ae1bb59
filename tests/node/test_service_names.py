"""Services have names inside Pods, and the names follow them: Pods that come later, go, or outlive their agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node.bench import Bench, get_ended, has_phase, is_over, run
from trainmaster.api.meta import Object
from trainmaster.api.resources import SERVICES
from trainmaster.shim.protocol import FULL

pytestmark = pytest.mark.node


def make_service(name: str, selector: dict[str, str], **spec: Any) -> Object:
    meta = {"name": name, "namespace": "default"}
    ports = [{"port": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"selector": selector, "ports": ports, **spec},
    }


async def resolve(bench: Bench, name: str, *hosts: str) -> None:
    """A new Pod finds all these names at once."""
    await bench.create(" && ".join(f"getent hosts {host}" for host in hosts), name=name)
    assert get_ended(await bench.wait_for(is_over, name))["exitCode"] == 0


def test_names_of_services_appear_and_go_while_pods_run(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent(level=FULL):
            script = "until getent hosts store; do sleep 0.02; done; echo found; "
            script += "while getent hosts store; do sleep 0.02; done"
            early = await bench.create(script, name="early")
            await bench.wait_for(has_phase("Running"), "early")
            await bench.client.create(SERVICES, make_service("store", {"app": "s"}), "default")
            labels = {"labels": {"app": "s"}}
            await bench.create("sleep 1000", name="s", hostname="one", subdomain="store", metadata=labels)
            served = await bench.wait_for(has_phase("Running"), "s")
            address = served["status"]["podIP"]
            log = Path(bench.get_paths(early).log("main", 0))
            await bench.wait_until(lambda: log.exists() and "found" in log.read_text())
            assert address in log.read_text()
            names = ("store", "store.default.svc", "one.store", "one.store.default.svc.cluster.local")
            await resolve(bench, "late", *names)
        # The Service goes while nobody looks: a new agent brings the Pod that it adopts up to date.
        await bench.client.delete(SERVICES, "store", "default")
        async with bench.running_agent(level=FULL):
            assert get_ended(await bench.wait_for(is_over, "early"))["exitCode"] == 0
            for name in ("early", "s", "late"):
                await bench.remove(name)

    run(tmp_path, test)


def test_a_pod_that_is_not_ready_has_no_name_unless_it_is_published(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent(level=FULL):
            for name, published in (("strict", False), ("open", True)):
                service = make_service(name, {"app": "s"}, clusterIP="None", publishNotReadyAddresses=published)
                await bench.client.create(SERVICES, service, "default")
            probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
            main = {"readinessProbe": probe}
            await bench.create("sleep 1000", name="s", main=main, metadata={"labels": {"app": "s"}})
            await bench.wait_for(has_phase("Running"), "s")
            script = "until getent hosts open; do sleep 0.02; done; ! getent hosts strict"
            await bench.create(script, name="look")
            assert get_ended(await bench.wait_for(is_over, "look"))["exitCode"] == 0
            for name in ("s", "look"):
                await bench.remove(name)

    run(tmp_path, test)
