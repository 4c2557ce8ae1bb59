"""The operator's status server on a real control plane: real tokens, real Pods' names, the real status."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.flow.stage import Stage, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.stage import IDENTITY, KwokNode, Site, open_site
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, PODS, SECRETS, SERVICE_ACCOUNTS, TRAIN_JOBS
from trainmaster.api.training.reports import build_audience, build_path
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.operator.mode import OperatorSettings, ProgressSettings, running_operator
from trainmaster.operator.status_keys import SECRET, ensure_keys

pytestmark = pytest.mark.kube


def post(url: str, ca: str, token: str, content: Object) -> tuple[int, Any]:
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=ca)),
    )
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def issue(client: Client, pod: Object, name: str) -> str:
    """As the kubelet does."""
    meta = pod["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    spec = {"audiences": [build_audience(meta["namespace"], name)], "expirationSeconds": 600, "boundObjectRef": bound}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = await client.create(SERVICE_ACCOUNTS, review, meta["namespace"], subresource="token", name="default")
    return str(made["status"]["token"])


async def find_pod(site: Site, name: str) -> Object:
    while True:
        for pod in (await site.client.list(PODS, site.namespace)).items:
            if pod["metadata"]["name"].startswith(f"{name}-node-0-0"):
                return pod
        await asyncio.sleep(0.05)


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_pod_of_a_cluster_reports_to_the_operator(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as site:
            port = free_port()
            progress = ProgressSettings(f"https://127.0.0.1:{port}", site.namespace, "127.0.0.1", port)
            settings = OperatorSettings(namespaces=(site.namespace,), progress=progress)
            client = site.client.as_user(IDENTITY)
            async with running_operator(client, settings, clock=SystemClock(), ids=SystemIds()):
                await play(site, progress.url)
            secret = await site.client.get(SECRETS, SECRET, site.namespace)
            again = await ensure_keys(client, site.namespace, ["127.0.0.1"], SystemClock())
            assert (await site.client.get(SECRETS, SECRET, site.namespace)) == secret, "it is made once"
            other = await ensure_keys(client, site.namespace, ["elsewhere"], SystemClock())
            assert again.ca != other.ca, "and anew for another name"

    asyncio.run(main())


async def play(site: Site, url: str) -> None:
    stage = Stage(site.client, site.namespace, KwokNode(), site.come_to_rest)
    for name in ("first", "second"):
        job = make_trainjob(name=name)
        await site.client.create(TRAIN_JOBS, {**job, "metadata": {"name": name}}, site.namespace)
    jobset = await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
    ca = str((await site.client.get(CONFIG_MAPS, "first-tls-config", site.namespace))["data"]["ca.crt"])
    env = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    target = next(entry["value"] for entry in env if entry["name"] == "KUBEFLOW_TRAINER_SERVER_URL")
    assert target == url + build_path(site.namespace, "first")
    pod = await find_pod(site, "first")
    token, stranger = (
        await issue(site.client, pod, "first"),
        await issue(site.client, await find_pod(site, "second"), "first"),
    )
    report: Object = {"progressPercentage": 42, "lastUpdatedTime": "2100-01-31T12:00:00.5+00:00"}
    report["metrics"] = [{"name": "loss", "value": "0.123"}]
    assert await ask(target, ca, token, {}) == (200, {})
    code, answer = await ask_again(target, ca, token, {"trainerStatus": report})
    assert (code, answer["trainerStatus"]["progressPercentage"]) == (200, 42)
    stored = (await site.client.get(TRAIN_JOBS, "first", site.namespace))["status"]["trainerStatus"]
    assert stored == {**report, "lastUpdatedTime": "2100-01-31T12:00:00Z"}
    refusals = {
        "of another job's Pod": await ask(target, ca, stranger, {"trainerStatus": report}),
        "for another job": await ask(target.replace("/first/", "/second/"), ca, token, {"trainerStatus": report}),
        "no token": await ask(target, ca, "nonsense", {"trainerStatus": report}),
        "out of range": await ask(target, ca, token, {"trainerStatus": {**report, "progressPercentage": 150}}),
        "another path": await ask(target + "/more", ca, token, {"trainerStatus": report}),
    }
    assert {what: code for what, (code, _) in refusals.items()} == {
        "of another job's Pod": 403, "for another job": 403, "no token": 403, "out of range": 422, "another path": 404,
    }  # fmt: skip
    assert '"first" is invalid' in refusals["out of range"][1]["message"]
    await site.client.delete(PODS, pod["metadata"]["name"], site.namespace, DeleteOptions(grace_seconds=0))


async def ask_again(url: str, ca: str, token: str, content: Object) -> tuple[int, Any]:
    """As the program of a new Pod does while the operator does not know the Pod yet."""
    deadline = time.monotonic() + 30
    while True:
        code, answer = await ask(url, ca, token, content)
        if code != 403 or time.monotonic() > deadline:
            return code, answer
        await asyncio.sleep(0.1)


async def ask(url: str, ca: str, token: str, content: Object) -> tuple[int, Any]:
    return await asyncio.to_thread(post, url, ca, token, content)
