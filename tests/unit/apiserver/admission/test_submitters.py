"""Only the API server says that the owner submitted a job, and nobody can make it say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support.chain import make_chain
from trainmaster.api.labels import OWNER, SUBMITTER
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.apiserver.admission.submitters import Submitters
from trainmaster.apiserver.local import LocalClient
from trainmaster.client.contract import ActingIdentity, PatchType
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

WHO = {"me": ActingIdentity("the-owner"), "ann": ActingIdentity("ann", groups=("system:masters",))}


class Everything:
    def allows(
        self, identity: ActingIdentity, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        return True


def run(test: Callable[[dict[str, LocalClient]], Awaitable[None]]) -> None:
    """With the clients of the owner and of another administrator."""

    async def main() -> None:
        async with running_cluster(authorizer=Everything()) as cluster:
            cluster.registry.state.admission.add(Submitters("the-owner"))
            await cluster.settle()
            await make_chain(cluster.client)
            await test({name: cluster.client.as_user(identity) for name, identity in WHO.items()})

    run_virtual(main())


async def create(client: LocalClient, name: str, **annotations: str) -> Object:
    job = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"runtimeRef": {"name": "j", "kind": "TrainingRuntime"}},
    }
    return await client.create(TRAIN_JOBS, job, "default")


def read(job: Object) -> dict[str, str]:
    return dict(job["metadata"].get("annotations") or {})


def test_the_owners_jobs_are_marked_and_no_others_whatever_they_say() -> None:
    async def test(clients: dict[str, LocalClient]) -> None:
        assert read(await create(clients["me"], "a", mine="1")) == {"mine": "1", SUBMITTER: OWNER}
        assert read(await create(clients["ann"], "b", **{SUBMITTER: OWNER, "mine": "1"})) == {"mine": "1"}

    run(test)


@pytest.mark.parametrize("value", [None, "ann", OWNER])
def test_nobody_changes_it_later(value: str | None) -> None:
    async def test(clients: dict[str, LocalClient]) -> None:
        for name, who in (("a", "me"), ("b", "ann")):
            before = read(await create(clients[who], name)).get(SUBMITTER)
            for client in clients.values():
                patch = {"metadata": {"annotations": {SUBMITTER: value, "x": "1"}}}
                after = await client.patch(TRAIN_JOBS, name, PatchType.MERGE, patch, "default")
                assert (read(after).get(SUBMITTER), read(after)["x"]) == (before, "1")
                written = {**after, "metadata": {**after["metadata"], "annotations": {"y": "1"}}}
                assert read(await client.update(TRAIN_JOBS, written, "default")).get(SUBMITTER) == before

    run(test)
