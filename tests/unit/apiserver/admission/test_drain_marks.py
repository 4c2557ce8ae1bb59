"""Only the control plane sets the marks of a drain; whoever may change a job can take them away."""

from __future__ import annotations

import pytest

from tests.support.chain import make_chain
from tests.unit.apiserver.admission.test_submitters import Everything, create, read
from trainmaster.api.labels import KEEPS_PLACE, SUSPENDED_BY_DRAIN
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.apiserver.admission.drain_marks import DrainMarks
from trainmaster.apiserver.local import SYSTEM
from trainmaster.client.contract import ActingIdentity, PatchType
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

SINCE = "2026-01-01T00:00:00Z"


def test_others_cannot_set_or_change_a_mark_and_can_take_it_away() -> None:
    async def main() -> None:
        async with running_cluster(authorizer=Everything()) as cluster:
            cluster.registry.state.admission.add(DrainMarks(SYSTEM.user))
            await make_chain(cluster.client)
            ann = cluster.client.as_user(ActingIdentity("ann", groups=("system:masters",)))
            made = await create(ann, "a", **{KEEPS_PLACE: "1970-01-01T00:00:00Z", "mine": "1"})
            assert read(made) == {"mine": "1"}
            forged = {"metadata": {"annotations": {SUSPENDED_BY_DRAIN: SINCE, KEEPS_PLACE: SINCE}}}
            assert read(await ann.patch(TRAIN_JOBS, "a", PatchType.MERGE, forged, "default")) == {"mine": "1"}
            set_by_us = await cluster.client.patch(TRAIN_JOBS, "a", PatchType.MERGE, forged, "default")
            assert read(set_by_us)[SUSPENDED_BY_DRAIN] == SINCE
            other = {"metadata": {"annotations": {KEEPS_PLACE: "1970-01-01T00:00:00Z", SUSPENDED_BY_DRAIN: None}}}
            changed = await ann.patch(TRAIN_JOBS, "a", PatchType.MERGE, other, "default")
            assert read(changed) == {"mine": "1", KEEPS_PLACE: SINCE}

    run_virtual(main())


def test_a_jobset_cannot_bring_a_place_in_the_queue_either() -> None:
    async def main() -> None:
        async with running_cluster(authorizer=Everything()) as cluster:
            cluster.registry.state.admission.add(DrainMarks(SYSTEM.user))
            ann = cluster.client.as_user(ActingIdentity("ann"))
            job = {"template": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}}
            meta = {"name": "a", "annotations": {KEEPS_PLACE: SINCE}}
            body = {
                "apiVersion": JOB_SETS.api_version,
                "kind": "JobSet",
                "metadata": meta,
                "spec": {"replicatedJobs": [{"name": "r", **job}]},
            }
            assert read(await ann.create(JOB_SETS, body, "default")) == {}

    run_virtual(main())
