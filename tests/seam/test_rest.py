"""`trainmaster rest` before a real cluster with upstream's Trainer: the guide's roles are enough, and the only ones."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.house.tree import ROOT
from tests.kube.cluster import KubeCluster
from tests.support.clients import Raw
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.clock import SystemClock
from trainmaster.operator.rest import Options, serving_rest

pytestmark = pytest.mark.kube

NAMESPACE = "rest-guide"
VERBS = ["create", "get", "list", "update", "patch", "delete"]
RULES = [
    {"apiGroups": [""], "resources": ["configmaps", "pods", "pods/log"], "verbs": VERBS},
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": [*VERBS, "watch"]},
]
BODY = {
    "user_id": "alice",
    "namespace": NAMESPACE,
    "framework": "pytorch",
    "training_code": "print(1)\n",
    "config": {"num_nodes": 2, "cpu_per_node": "100m", "memory_per_node": "64Mi"},
}

Call = Callable[..., Awaitable[tuple[int, Any]]]


def prepare(cluster: KubeCluster) -> str:
    """A user with the guide's role in one namespace; their token."""
    meta = {"name": "alice", "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "alice"}
    subject = {"kind": "ServiceAccount", **meta}
    rbac = "rbac.authorization.k8s.io/v1"
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": RULES},
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    ]
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    cluster.apply((ROOT / "trainmaster/manifests/pytorch/runtime.yaml").read_text())
    return cluster.kubectl("create", "token", "alice", "-n", NAMESPACE).strip()


def play(cluster: KubeCluster, state: Path, test: Callable[[Call], Awaitable[None]]) -> None:
    token = prepare(cluster)

    async def main() -> None:
        config = load_kubeconfig([cluster.kubeconfig])
        async with serving_rest(config, Options(state), SystemClock()) as (url, ca):
            raw = Raw(url, ssl.create_default_context(cafile=ca), token)

            async def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
                return await asyncio.to_thread(raw.call, method, path, body)

            try:
                await test(call)
            finally:
                raw.close()

    asyncio.run(main())


def test_the_guides_role_is_enough_on_a_cluster(trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    async def test(call: Call) -> None:
        assert await call("GET", "/readyz") == (200, {"status": "ok"})
        code, made = await call("POST", "/api/trainjob/create", BODY)
        assert code == 200, made
        name = made["trainjob_name"]
        job = json.loads(trainer_cluster.kubectl("get", "trainjob", name, "-n", NAMESPACE, "-o", "json"))
        # Upstream's kinds of today have this shape only.
        assert "runtimePatches" in job["spec"]
        copy = json.loads(trainer_cluster.kubectl("get", "configmap", f"{name}-script", "-n", NAMESPACE, "-o", "json"))
        assert copy["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        path = f"/api/trainjob/{name}/status?namespace={NAMESPACE}"
        for _ in range(600):
            code, state = await call("GET", path)
            assert code == 200, state
            if state["state"] != "Running":
                break
            await asyncio.sleep(0.1)
        assert state["state"] == "Complete", state
        code, refused = await call("POST", "/api/trainjob/create", {**BODY, "namespace": "default"})
        assert code == 403, refused
        code, done = await call("DELETE", f"/api/trainjob/{name}?namespace={NAMESPACE}&delete_user_configmap=true")
        assert "alice-train-script is deleted" in done["message"]
        assert (await call("GET", path))[0] == 404

    play(trainer_cluster, tmp_path, test)


def test_where_the_server_has_the_shape_of_trainer_2_1_volumes_stand_in_it(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    """Our kinds have both shapes, Trainer 2.1 has only this one; the server keeps what was sent."""

    async def test(call: Call) -> None:
        code, made = await call("POST", "/api/trainjob/create", BODY)
        assert code == 200, made
        name = made["trainjob_name"]
        job = json.loads(seam_cluster.kubectl("get", "trainjob", name, "-n", NAMESPACE, "-o", "json"))
        assert "runtimePatches" not in job["spec"]
        volumes = [volume["name"] for one in job["spec"]["podTemplateOverrides"] for volume in one["spec"]["volumes"]]
        assert len(volumes) == 2
        assert (await call("DELETE", f"/api/trainjob/{name}?namespace={NAMESPACE}"))[0] == 200

    play(seam_cluster, tmp_path, test)
