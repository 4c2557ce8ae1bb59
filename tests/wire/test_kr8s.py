"""Checklist K: kr8s, unmodified. Its asyncio interface, because the other one keeps a thread and its connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import kr8s
import pytest
from kr8s.asyncio.objects import ConfigMap, Pod, new_class, objects_from_files

from tests.support.clients import Raw, Target
from tests.wire.conftest import MANIFESTS

pytestmark = [
    pytest.mark.wire,
    # Said about the real server that this suite is checked against, which is newer than kr8s knows.
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),
]

Check = Callable[[Any], Awaitable[None]]
Runner = Callable[[Check], None]


@asynccontextmanager
async def connected(target: Target, namespace: str) -> AsyncIterator[Any]:
    api = await kr8s.asyncio.api(kubeconfig=str(target.kubeconfig), namespace=namespace)
    try:
        yield api
    finally:
        # Its watch leaves generators to the event loop, which ends them one inside the other in tasks of its own.
        for _ in range(10):
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)
        await api._session.aclose()  # kr8s has no public way to end a connection


@pytest.fixture
def using(target: Target, namespace: str) -> Runner:
    """Runs a check with a kr8s that is connected to the server."""

    async def go(check: Check) -> None:
        async with connected(target, namespace) as api:
            await check(api)

    return lambda check: asyncio.run(go(check))


def configmap(name: str, namespace: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"set": "w"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, namespace: str) -> dict[str, Any]:
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.invalid/x:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def test_version_and_identity(using: Runner) -> None:
    async def check(api: Any) -> None:
        assert (await api.version())["gitVersion"].startswith("v1.")
        assert await api.whoami()

    using(check)


def test_objects_are_created_read_patched_labelled_and_deleted(using: Runner, namespace: str) -> None:
    async def check(api: Any) -> None:
        made = await ConfigMap(configmap("a", namespace, x="1"), api=api)
        await made.create()
        assert await made.exists()
        await made.patch({"data": {"x": "2"}})
        await made.label({"tier": "front"})
        await made.annotate({"note": "n"})
        await made.refresh()
        assert (made.data.x, made.labels["tier"], made.annotations["note"]) == ("2", "front", "n")
        found = [item.name async for item in api.get("configmaps", label_selector={"tier": "front"})]
        assert found == ["a"]
        await made.delete()
        await made.wait("delete", timeout=20)
        assert not await made.exists()

    using(check)


def test_lists_are_longer_than_one_page(using: Runner, raw: Raw, namespace: str) -> None:
    want = [f"c{number:03}" for number in range(105)]
    for name in want:
        raw.create(f"/api/v1/namespaces/{namespace}/configmaps", configmap(name, namespace))

    async def check(api: Any) -> None:
        assert [item.name async for item in api.get("configmaps", label_selector="set=w")] == want

    using(check)


def test_custom_kinds_are_found_by_name(using: Runner, namespace: str) -> None:
    async def check(api: Any) -> None:
        for item in await objects_from_files(MANIFESTS / "runtime.yaml", api=api):
            item.raw["metadata"]["namespace"] = namespace
            await item.create()
        (found,) = [item async for item in api.get("trainingruntimes")]
        assert found.raw["spec"]["mlPolicy"]["numNodes"] == 1
        runtimes = new_class("TrainingRuntime", version="trainer.kubeflow.org/v1alpha1", plural="trainingruntimes")
        same = await runtimes.get("plain", namespace=namespace, api=api)
        await same.patch({"spec": {"mlPolicy": {"numNodes": 6}}})
        assert same.raw["spec"]["mlPolicy"]["numNodes"] == 6

    using(check)


def test_a_watch_sees_what_is_there_and_what_comes(using: Runner, raw: Raw, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    raw.create(path, configmap("a", namespace))

    async def check(api: Any) -> None:
        seen = []
        # `watch` is the same with a generator around it that never closes this one.
        async with aclosing(api.async_watch("configmaps", label_selector="set=w")) as events:
            async for kind, item in events:
                seen.append((kind, item.name))
                if len(seen) == 2:
                    break
                raw.create(path, configmap("b", namespace))
        assert seen == [("ADDED", "a"), ("ADDED", "b")]

    using(check)


def test_wait_returns_when_the_condition_is_there(using: Runner, raw: Raw, namespace: str) -> None:
    async def check(api: Any) -> None:
        waiting = await Pod(pod("p", namespace), api=api)
        await waiting.create()
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        raw.merge(f"/api/v1/namespaces/{namespace}/pods/p/status", {"status": status})
        await waiting.wait("condition=Ready", timeout=20)
        await waiting.wait("jsonpath='{.status.phase}'=Running", timeout=20)
        await waiting.delete(grace_period=0)

    using(check)


def test_what_is_not_there_is_not_found(using: Runner, namespace: str) -> None:
    async def check(api: Any) -> None:
        with pytest.raises(kr8s.NotFoundError):
            await ConfigMap.get("nosuch", namespace=namespace, api=api, timeout=0)

    using(check)


def test_a_running_pod_is_entered_read_and_reached(using: Runner, namespace: str) -> None:
    """Before it enters a Pod, kr8s waits for its conditions Ready and ContainersReady, without a limit."""
    serve = "import http.server as h; s = h.HTTPServer(('', 0), h.SimpleHTTPRequestHandler); print(s.server_port);"
    program = ["python3", "-u", "-c", f"{serve} s.serve_forever()"]
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "python:3", "command": program}],
    }

    async def check(api: Any) -> None:
        metadata = {"name": "r", "namespace": namespace}
        running = await Pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, api=api)
        await running.create()
        await asyncio.wait_for(running.wait("condition=Ready"), 60)
        assert await running.ready()
        done = await running.exec(["sh", "-c", "echo inside; exit 3"], check=False)
        assert (done.stdout, done.returncode) == (b"inside\n", 3)
        async with aclosing(running.logs(follow=True)) as lines:
            port = int(await anext(lines))
        async with running.portforward(remote_port=port) as local:
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.0 200")
            writer.close()
            await writer.wait_closed()
        await running.delete()

    using(check)
