"""A tenant takes all it can for ten seconds; another one's requests are answered and its job ends well.

How much slower the other one gets is measured by `bench/greedy_tenant.py`.
"""

from __future__ import annotations

import pytest

from bench.greedy_tenant import run
from tests.attacks.site import Site

pytestmark = pytest.mark.attacks


def test_a_greedy_tenant_spoils_nobody_elses_work(site: Site) -> None:
    outcome = run(site.server, 10.0, quiet_seconds=1.0)
    assert outcome.job == "Complete"
    assert outcome.wrong == []
    assert len(outcome.during) > 10
    # It did try, and was refused.
    assert outcome.answers["pod 403"]
    assert outcome.answers["job 403"]
    assert site.is_alive()
