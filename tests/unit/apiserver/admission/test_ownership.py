"""In a tenant's namespace only controllers say who belongs to whom; what was there before stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from trainmaster.api import tenancy
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES, PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.apiserver.local import LocalClient
from trainmaster.client.contract import ActingIdentity, PatchType
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

ANN = ActingIdentity("system:serviceaccount:ann:tenant", groups=("system:serviceaccounts",))
MARK = "jobset.sigs.k8s.io/jobset-uid"


class _Everything:
    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        return True


def run(test: Callable[[LocalClient, LocalClient], Awaitable[None]]) -> None:
    """`test(the server's own client, ann's)`."""

    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", 611_007))
            await cluster.settle()
            owner = LocalClient(cluster.registry, authorizer=_Everything())
            await test(owner, owner.as_user(ANN))

    run_virtual(main())


def build_pod(name: str = "p", **metadata: object) -> Object:
    container = {"name": "c", "image": "i"}
    meta = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


def build_map(name: str, **metadata: object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def refer(obj: Object, **changes: object) -> Object:
    meta = obj["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], **changes}


def test_controllers_may_and_tenants_may_not() -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        await owner.create(PODS, build_pod(labels={MARK: "x"}), "ann")
        with pytest.raises(StatusError, match=f"metadata.labels: {MARK} is written by controllers only") as caught:
            await ann.create(PODS, build_pod("q", labels={MARK: "x"}), "ann")
        assert caught.value.code == 403

    run(test)


def test_elsewhere_everybody_may() -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        await ann.create(PODS, build_pod(labels={MARK: "x"}), "default")

    run(test)


def test_what_was_there_before_may_stay_and_nothing_is_added_to_it() -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        await owner.create(PODS, build_pod(labels={MARK: "x"}), "ann")
        await ann.patch(PODS, "p", PatchType.MERGE, {"metadata": {"labels": {"mine": "1"}}}, "ann")
        with pytest.raises(StatusError, match="job-name is written by controllers only"):
            await ann.patch(PODS, "p", PatchType.MERGE, {"metadata": {"labels": {"job-name": "1"}}}, "ann")

    run(test)


def test_a_value_of_a_controller_is_not_changed_by_a_tenant() -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        await owner.create(PODS, build_pod(labels={MARK: "x"}), "ann")
        with pytest.raises(StatusError, match=f"{MARK} is written by controllers only"):
            await ann.patch(PODS, "p", PatchType.MERGE, {"metadata": {"labels": {MARK: "y"}}}, "ann")

    run(test)


def test_an_owner_must_exist_with_that_uid_in_the_same_namespace() -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        own = await ann.create(CONFIG_MAPS, build_map("own"), "ann")
        other = await owner.create(CONFIG_MAPS, build_map("other"), "default")
        await ann.create(CONFIG_MAPS, build_map("a", ownerReferences=[refer(own)]), "ann")
        for wrong in (refer(other), refer(own, uid="no"), refer(own, name="other"), refer(own, kind="Nothing")):
            with pytest.raises(StatusError, match="with that uid in this namespace"):
                await ann.create(CONFIG_MAPS, build_map("b", ownerReferences=[wrong]), "ann")
        with pytest.raises(StatusError, match="with that uid in this namespace"):
            patch = {"metadata": {"ownerReferences": [refer(own), refer(other)]}}
            await ann.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, "ann")

    run(test)


def test_only_controllers_become_the_controller_of_a_pod() -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        own = await ann.create(CONFIG_MAPS, build_map("own"), "ann")
        await ann.create(PODS, build_pod("a", ownerReferences=[refer(own)]), "ann")
        with pytest.raises(StatusError, match="names a controller, which only controllers do on a Pod"):
            await ann.create(PODS, build_pod("b", ownerReferences=[refer(own, controller=True)]), "ann")

    run(test)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_a_trainjob_cannot_hand_them_to_its_children(field: str) -> None:
    async def test(owner: LocalClient, ann: LocalClient) -> None:
        spec = {"runtimeRef": {"name": "none"}, field: {MARK: "x"}}
        body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "j"}}
        with pytest.raises(StatusError, match=f"spec.{field}: {MARK} is written by controllers only"):
            await ann.create(TRAIN_JOBS, {**body, "spec": spec}, "ann")

    run(test)
