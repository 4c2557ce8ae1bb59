from __future__ import annotations

import pytest

from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.ids import SeededIds

pytestmark = pytest.mark.unit


def test_delays_double_up_to_the_cap() -> None:
    policy = BackoffPolicy(first=1, cap=60)
    assert [policy.delay(failures) for failures in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_the_cap_holds_for_any_number_of_failures() -> None:
    assert BackoffPolicy(first=0.005, cap=1000).delay(1_000_000) == 1000


def test_jitter_only_shortens_and_follows_the_seed() -> None:
    policy = BackoffPolicy(first=10, cap=10, jitter=0.2)
    ids, again = SeededIds(1), SeededIds(1)
    delays = [policy.delay(1, ids) for _ in range(100)]
    assert all(8 < delay <= 10 for delay in delays) and len(set(delays)) > 50
    assert delays == [policy.delay(1, again) for _ in range(100)]


def test_a_reset_starts_over() -> None:
    backoff = Backoff(BackoffPolicy(first=1, cap=60))
    assert [backoff.next(), backoff.next(), backoff.failures] == [1, 2, 2]
    backoff.reset()
    assert backoff.next() == 1
