"""Namespaces: what they hold from the start, and how they end."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import CONFIG_MAPS, NAMESPACES, PODS, make_config_map, make_pod, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.status import NotFound
from trainmaster.client.contract import PatchType

pytestmark = pytest.mark.contract


async def test_a_new_namespace_is_active_and_labelled_with_its_name(stage: Stage) -> None:
    obj = await stage.client.get(NAMESPACES, stage.namespace)
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": stage.namespace}
    assert obj["spec"] == {"finalizers": ["kubernetes"]}
    assert obj["status"] == {"phase": "Active"}
    assert "generation" not in obj["metadata"]


async def test_the_usual_namespaces_exist(stage: Stage) -> None:
    found = {item["metadata"]["name"] for item in (await stage.client.list(NAMESPACES)).items}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= found


async def test_every_namespace_holds_the_certificate_authority(stage: Stage) -> None:
    async def found() -> bool:
        listed = await stage.client.list(CONFIG_MAPS, stage.namespace)
        return [item["metadata"]["name"] for item in listed.items] == ["kube-root-ca.crt"]

    await stage.eventually(found)
    obj = await stage.client.get(CONFIG_MAPS, "kube-root-ca.crt", stage.namespace)
    assert obj["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----\n")


async def test_the_immortal_namespaces_stay(stage: Stage) -> None:
    assert await refusal(stage.client.delete(NAMESPACES, "default")) == {
        "code": 403,
        "reason": "Forbidden",
        "message": 'namespaces "default" is forbidden: this namespace may not be deleted',
        "details": {"name": "default", "kind": "namespaces"},
    }


async def test_a_deleted_namespace_is_emptied_and_goes(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    await stage.client.create(PODS, make_pod(), stage.namespace)
    going = await stage.client.delete(NAMESPACES, stage.namespace)
    assert going["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in going["metadata"]
    assert "deletionGracePeriodSeconds" not in going["metadata"]

    async def gone() -> bool:
        try:
            await stage.client.get(NAMESPACES, stage.namespace)
        except NotFound:
            return True
        return False

    await stage.eventually(gone)
    assert (await stage.client.list(CONFIG_MAPS, stage.namespace)).items == []


async def test_a_terminating_namespace_takes_nothing_new_and_waits_for_finalizers(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map("held", finalizers=["example.com/hold"]), stage.namespace)
    await stage.client.delete(NAMESPACES, stage.namespace)
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map("new"), stage.namespace)) == {
        "code": 403,
        "reason": "Forbidden",
        "message": f'configmaps "new" is forbidden: unable to create new content in namespace {stage.namespace} '
        "because it is being terminated",
        "details": {
            "name": "new",
            "kind": "configmaps",
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {stage.namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        },
    }
    again = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}}
    assert await refusal(stage.client.create(NAMESPACES, again)) == {
        "code": 409,
        "reason": "AlreadyExists",
        "message": f'object is being deleted: namespaces "{stage.namespace}" already exists',
        "details": {"name": stage.namespace, "kind": "namespaces"},
    }

    async def held_is_going() -> bool:
        held = await stage.client.get(CONFIG_MAPS, "held", stage.namespace)
        return "deletionTimestamp" in held["metadata"]

    await stage.eventually(held_is_going)
    patch = {"metadata": {"finalizers": None}}
    await stage.client.patch(CONFIG_MAPS, "held", PatchType.MERGE, patch, stage.namespace)

    async def gone() -> bool:
        try:
            await stage.client.get(NAMESPACES, stage.namespace)
        except NotFound:
            return True
        return False

    await stage.eventually(gone)
