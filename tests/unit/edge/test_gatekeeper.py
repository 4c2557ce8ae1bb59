"""Who may have a connection."""

from __future__ import annotations

import pytest

from trainmaster.edge.gatekeeper import Gatekeeper, Visitor
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.refusals import EdgeRefusal

pytestmark = pytest.mark.unit


class House:
    def __init__(self, descriptors: int = 0, **limits: object) -> None:
        self.keeper = Gatekeeper(EdgeLimits(**limits), descriptors=descriptors)  # type: ignore[arg-type]
        self.closed: list[Visitor] = []

    def come(self, address: str = "10.0.0.1", user: str = "", *, privileged: bool = False) -> Visitor:
        visitor = Visitor(address)
        visitor.end = lambda: self.closed.append(visitor)
        assert self.keeper.admit(visitor)
        if user:
            self.keeper.recognise(visitor, user, is_privileged=privileged)
        return visitor


def test_a_new_stranger_closes_the_oldest_of_its_address() -> None:
    house = House(connections_per_address=2)
    first, other, second = house.come(), house.come("10.0.0.2"), house.come()
    assert house.closed == []
    third = house.come()
    assert house.closed == [first]
    house.come()
    assert house.closed == [first, second]
    assert other not in house.closed and third not in house.closed


def test_whoever_showed_credentials_is_closed_for_nobody() -> None:
    house = House(connections_per_address=2)
    known = house.come(user="ann")
    for _ in range(50):
        house.come()
    assert known not in house.closed and len(house.closed) == 48


def test_the_owner_gets_through_a_flood_from_the_same_address() -> None:
    house = House(connections=16, connections_per_address=8)
    for _ in range(100):
        house.come("127.0.0.1")
    owner = house.come("127.0.0.1", "owner", privileged=True)
    for _ in range(100):
        house.come("127.0.0.1")
    assert owner not in house.closed


def test_at_the_limit_of_all_the_address_with_most_gives_way() -> None:
    house = House(connections=8, connections_per_address=6)
    small = house.come("10.0.0.9")
    large = [house.come("10.0.0.1") for _ in range(6)]
    house.come("10.0.0.2")
    house.come("10.0.0.3")
    assert house.closed == [large[0]] and len(house.keeper) == 8
    assert small not in house.closed


def test_a_user_has_so_many_and_says_so() -> None:
    house = House(connections_per_user=3)
    mine = [house.come(user="ann") for _ in range(3)]
    with pytest.raises(EdgeRefusal, match=r"limits\.connections_per_user") as refused:
        house.come(user="ann")
    assert refused.value.code == 429 and refused.value.retry_after == 1
    house.come(user="bob")
    house.keeper.remove(mine[0])
    house.come(user="ann")
    assert house.closed == []


def test_users_together_leave_room_for_administrators() -> None:
    house = House(connections=16, connections_per_user=5)
    users = 0
    with pytest.raises(EdgeRefusal, match=r"limits\.connections\)"):
        for number in range(100):
            house.come(f"10.0.{number}.1", f"user-{number}")
            users += 1
    assert users == 14
    owners = [house.come("10.9.9.9", "owner", privileged=True) for _ in range(2)]
    assert not set(owners) & set(house.closed)


def test_leaving_gives_everything_back() -> None:
    house = House()
    everybody = [house.come(), house.come(user="ann"), house.come(user="owner", privileged=True)]
    for visitor in everybody * 2:
        house.keeper.remove(visitor)
    assert len(house.keeper) == 0 and house.keeper.count_strangers() == 0
    assert not house.keeper._users and house.keeper._known == 0


def test_a_connection_that_changes_hands_is_counted_once() -> None:
    house = House(connections_per_user=1)
    visitor = house.come(user="ann")
    house.keeper.recognise(visitor, "bob", is_privileged=False)
    house.come(user="ann")
    with pytest.raises(EdgeRefusal):
        house.come(user="bob")


def test_a_trusted_proxy_carries_many() -> None:
    house = House(connections_per_address=2, connections_per_user=1, trusted_proxies=("10.0.0.0/8",))
    for number in range(20):
        house.come("10.0.0.1", f"user-{number % 2}")
    assert house.closed == [] and house.keeper.count_strangers() == 0


def test_a_host_of_ipv6_is_its_network() -> None:
    house = House(connections_per_address=2)
    for number in range(10):
        house.come(f"2001:db8:0:1::{number + 1}")
    assert len(house.closed) == 8


@pytest.mark.parametrize(("descriptors", "most"), [(0, 4096), (1024, 512), (65_536, 4096), (20, 16)])
def test_descriptors_are_left_for_other_things(descriptors: int, most: int) -> None:
    assert House(descriptors).keeper.most == most
