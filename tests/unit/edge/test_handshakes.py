"""Whose handshake begins next."""

from __future__ import annotations

import pytest

from trainmaster.edge.gatekeeper import Visitor
from trainmaster.edge.handshakes import HandshakeQueue

pytestmark = pytest.mark.unit


def test_a_burst_begins_at_once_and_the_rest_in_time() -> None:
    queue = HandshakeQueue(per_second=10.0, burst=2)
    visitors = [Visitor("10.0.0.1", port) for port in range(4)]
    for visitor in visitors:
        queue.add(visitor)
    assert queue.take(100.0) is not None
    assert queue.take(100.0) is not None
    assert queue.take(100.0) is None
    wait = queue.find_wait(100.0)
    assert wait is not None and abs(wait - 0.1) < 1e-9
    assert queue.take(100.05) is None
    assert queue.take(100.101) is not None
    assert len(queue) == 1


def test_of_one_address_the_newest_goes_first() -> None:
    queue = HandshakeQueue(per_second=1.0, burst=8)
    old, new = Visitor("10.0.0.1", 1), Visitor("10.0.0.1", 2)
    queue.add(old)
    queue.add(new)
    assert [queue.take(0.0), queue.take(0.0), queue.take(0.0)] == [new, old, None]


def test_addresses_take_turns() -> None:
    queue = HandshakeQueue(per_second=1.0, burst=8)
    flood = [Visitor("10.0.0.1", port) for port in range(5)]
    for visitor in flood:
        queue.add(visitor)
    other = Visitor("10.0.0.2", 1)
    queue.add(other)
    assert queue.take(0.0) is flood[-1]
    assert queue.take(0.0) is other


def test_who_has_gone_is_not_begun() -> None:
    queue = HandshakeQueue(per_second=1.0, burst=8)
    visitor = Visitor("10.0.0.1", 1)
    queue.add(visitor)
    queue.remove(visitor)
    queue.remove(visitor)
    assert queue.take(0.0) is None
    assert queue.find_wait(0.0) is None
