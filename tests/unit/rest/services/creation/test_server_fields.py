"""Which shape of volumes a server's TrainJobs know: Trainer 2.1, later ones, ours, and an upgrade in between."""

from __future__ import annotations

import pytest

from trainmaster.jobs.compose.trainjob import OVERRIDES, PATCHES
from trainmaster.rest.services.creation.server_fields import ServerFields
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("fields", "overrides"),
    [({OVERRIDES, "trainer"}, True), ({PATCHES, "trainer"}, False), ({OVERRIDES, PATCHES}, True), (set(), True)],
)
def test_the_servers_own_fields_decide(fields: set[str], overrides: bool) -> None:
    async def find() -> frozenset[str]:
        return frozenset(fields)

    async def main() -> None:
        assert (await ServerFields(find, VirtualClock()).get_shape()).has_overrides is overrides

    run_virtual(main())


def test_an_upgrade_of_the_cluster_is_noticed_within_five_minutes() -> None:
    async def main() -> None:
        offered, clock, asked = {OVERRIDES}, VirtualClock(), []

        async def find() -> frozenset[str]:
            asked.append(1)
            return frozenset(offered)

        server = ServerFields(find, clock)
        assert [(await server.get_shape()).has_overrides for _ in range(3)] == [True] * 3
        assert len(asked) == 1
        offered = {PATCHES}
        await clock.sleep(301)
        assert (await server.get_shape()).has_overrides is False

    run_virtual(main())
