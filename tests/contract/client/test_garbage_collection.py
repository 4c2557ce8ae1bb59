"""Owner references: what goes when its owner goes, and what stays."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import CONFIG_MAPS, SECRETS, make_config_map, owned_by
from tests.contract.client.stage import Stage
from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import NotFound
from trainmaster.client.contract import DeleteOptions, PatchType

pytestmark = pytest.mark.contract

HOLD = "example.com/hold"


async def create(stage: Stage, name: str, *owners: Object, **metadata: object) -> Object:
    obj = make_config_map(name)
    obj["metadata"] |= metadata
    if owners:
        obj["metadata"]["ownerReferences"] = list(owners)
    return await stage.client.create(CONFIG_MAPS, obj, stage.namespace)


async def find(stage: Stage, name: str, gvr: GVR = CONFIG_MAPS) -> Object | None:
    try:
        return await stage.client.get(gvr, name, stage.namespace)
    except NotFound:
        return None


async def delete(stage: Stage, name: str, policy: str) -> Object:
    return await stage.client.delete(CONFIG_MAPS, name, stage.namespace, DeleteOptions(policy))


async def goes(stage: Stage, name: str, gvr: GVR = CONFIG_MAPS) -> None:
    async def gone() -> bool:
        return await find(stage, name, gvr) is None

    await stage.eventually(gone)


async def release(stage: Stage, name: str) -> None:
    await stage.client.patch(CONFIG_MAPS, name, PatchType.MERGE, {"metadata": {"finalizers": None}}, stage.namespace)


async def test_dependents_go_after_their_owner(stage: Stage) -> None:
    owner = await create(stage, "owner")
    child = await create(stage, "child", owned_by(owner))
    await create(stage, "grandchild", owned_by(child))
    metadata = {"name": "other-kind", "ownerReferences": [owned_by(owner)]}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    await stage.client.create(SECRETS, secret, stage.namespace)
    await create(stage, "bystander")
    answer = await delete(stage, "owner", "Background")
    assert answer["kind"] == "Status"
    for name in ("child", "grandchild"):
        await goes(stage, name)
    await goes(stage, "other-kind", SECRETS)
    assert await find(stage, "bystander") is not None


async def test_a_dependent_with_another_owner_stays_and_forgets_the_one_that_went(stage: Stage) -> None:
    first, second = await create(stage, "first"), await create(stage, "second")
    await create(stage, "child", owned_by(first), owned_by(second))
    await delete(stage, "first", "Background")

    async def owners() -> bool:
        child = await find(stage, "child")
        assert child is not None
        return [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["second"]

    await stage.eventually(owners)


async def test_ownership_is_by_uid(stage: Stage) -> None:
    owner = await create(stage, "owner")
    await create(stage, "child", owned_by(owner, uid="11111111-2222-3333-4444-555555555555"))
    await goes(stage, "child")
    assert await find(stage, "owner") is not None


async def test_in_the_foreground_the_owner_waits_for_dependents_that_block(stage: Stage) -> None:
    owner = await create(stage, "owner")
    await create(stage, "child", owned_by(owner, blockOwnerDeletion=True), finalizers=[HOLD])
    going = await delete(stage, "owner", "Foreground")
    assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert going["metadata"]["deletionGracePeriodSeconds"] == 0

    async def child_is_going() -> bool:
        child = await find(stage, "child")
        return child is not None and "deletionTimestamp" in child["metadata"]

    await stage.eventually(child_is_going)
    assert await find(stage, "owner") is not None
    await release(stage, "child")
    await goes(stage, "child")
    await goes(stage, "owner")


async def test_in_the_foreground_dependents_that_do_not_block_are_not_waited_for(stage: Stage) -> None:
    owner = await create(stage, "owner")
    await create(stage, "child", owned_by(owner), finalizers=[HOLD])
    await delete(stage, "owner", "Foreground")
    await goes(stage, "owner")
    await release(stage, "child")
    await goes(stage, "child")


async def test_the_foreground_reaches_down_a_chain(stage: Stage) -> None:
    owner = await create(stage, "owner")
    child = await create(stage, "child", owned_by(owner, blockOwnerDeletion=True))
    await create(stage, "grandchild", owned_by(child, blockOwnerDeletion=True))
    await delete(stage, "owner", "Foreground")
    for name in ("grandchild", "child", "owner"):
        await goes(stage, name)


async def test_orphans_stay_and_forget_their_owner(stage: Stage) -> None:
    owner = await create(stage, "owner")
    await create(stage, "child", owned_by(owner))
    going = await delete(stage, "owner", "Orphan")
    assert going["metadata"]["finalizers"] == ["orphan"]
    await goes(stage, "owner")
    child = await find(stage, "child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]


async def test_two_objects_that_own_each_other_can_go(stage: Stage) -> None:
    first = await create(stage, "first")
    second = await create(stage, "second", owned_by(first, blockOwnerDeletion=True))
    patch = {"metadata": {"ownerReferences": [owned_by(second, blockOwnerDeletion=True)]}}
    await stage.client.patch(CONFIG_MAPS, "first", PatchType.MERGE, patch, stage.namespace)
    await delete(stage, "first", "Foreground")
    await goes(stage, "first")
    await goes(stage, "second")
