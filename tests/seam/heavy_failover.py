"""What takes too long for `make test`: failover with the times of an installation, after each write.

make heavy
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.cluster import KubeCluster
from tests.seam.test_failover import check_kills, check_stop

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

_STILL_SECONDS = 30.0


def test_a_leader_that_is_killed_after_a_write_is_followed_by_another(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    check_kills(seam_cluster, tmp_path, [1, 2, 3], lease={})


def test_a_leader_that_stood_still_for_longer_than_its_lease_sends_nothing_more(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    check_stop(seam_cluster, tmp_path, seconds=_STILL_SECONDS, lease={})
